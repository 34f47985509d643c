#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "headrace/pack.h"
#include "interpreter/interpreter_gate.h"
#include "loading.h"
#include "short_repr.h"

namespace py = pybind11;

namespace headrace::python {

void bind_pack(py::module_& module) {
  using R = PackReport;
  py::class_<R>(module, "PackReport")
      .def_readonly("file", &R::file)
      .def_readonly("layout", &R::layout)
      .def_readonly("dtype", &R::dtype)
      .def_readonly("isa", &R::isa)
      .def_readonly("num_tensors", &R::num_tensors)
      .def_readonly("file_bytes", &R::file_bytes)
      .def_readonly("seconds", &R::seconds)
      .def("__repr__", short_repr);
  module.attr("PACKED_FILE_NAME") = kPackedFileName;
  module.def(
      "pack_model",
      [](const ModelOptions& options, const std::string& file,
         const std::optional<py::object>& progress) {
        PackReport report;
        run_load(options, progress, {},
                 [&](const ModelOptions& hooked) { report = pack_model(hooked, file); });
        return report;
      },
      py::arg("options"), py::arg("file"), py::kw_only(), py::arg("progress") = py::none());
  module.def(
      "check_packed",
      [](const ModelOptions& options) {
        const GilRelease release;
        check_packed(ModelOptions(options));
      },
      py::arg("options"));
}

}  // namespace headrace::python
