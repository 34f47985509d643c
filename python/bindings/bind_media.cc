#include <cstring>
#include <span>
#include <string>

#include "bindings.h"
#include "headrace/media.h"
#include "headrace/status.h"
#include "interpreter/interpreter_gate.h"
#include "interpreter/locked_bytes.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

/// Not filled yet: nobody else sees it before it is returned.
py::bytes new_bytes(size_t count) {
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count));
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(made);
}

py::bytes resize(const py::object& pixels, int64_t height, int64_t width, int64_t to_height,
                 int64_t to_width, int filter) {
  const PatchLayout from{1, height, width, 1, 1, 1}, to{1, to_height, to_width, 1, 1, 1};
  const LockedBytes source(pixels);
  source.require("pixels", patch_values(from));
  py::bytes result = new_bytes(patch_values(to));
  auto* target = reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(result.ptr()));
  const GilRelease release;
  resize_rgb(source.data(), {height, width}, target, {to_height, to_width},
             static_cast<ResizeFilter>(filter));
  return result;
}

py::bytes patches(const py::object& pixels, const PatchLayout& layout, const py::object& table) {
  const size_t values = patch_values(layout);
  const LockedBytes source(pixels), levels(table);
  source.require("pixels", static_cast<size_t>(3 * layout.frames * layout.height * layout.width));
  levels.require("table", 768 * sizeof(float));
  float copy[768];
  std::memcpy(copy, levels.data(), sizeof copy);
  py::bytes result = new_bytes(values * sizeof(float));
  auto* target = reinterpret_cast<float*>(PyBytes_AS_STRING(result.ptr()));
  const GilRelease release;
  normalize_patches(source.data(), layout, copy, target);
  return result;
}

}  // namespace

void bind_media(py::module_& module) {
  bind_media_input(module);
  module.def("resize_rgb", resize, py::arg("pixels"), py::arg("height"), py::arg("width"),
             py::arg("to_height"), py::arg("to_width"), py::arg("filter"));
  module.def(
      "normalize_patches",
      [](const py::object& pixels, int64_t frames, int64_t height, int64_t width, int patch_size,
         int merge_size, int temporal_patch_size, const py::object& table) {
        return patches(pixels, {frames, height, width, patch_size, merge_size, temporal_patch_size},
                       table);
      },
      py::arg("pixels"), py::arg("frames"), py::arg("height"), py::arg("width"), py::kw_only(),
      py::arg("patch_size"), py::arg("merge_size"), py::arg("temporal_patch_size"),
      py::arg("table"));
}

}  // namespace headrace::python
