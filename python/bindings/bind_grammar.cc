#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "headrace/grammar.h"
#include "headrace/thinking.h"
#include "interpreter/interpreter_gate.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

using Named = std::vector<std::pair<int32_t, std::string>>;

std::unique_ptr<GrammarCompiler> make_compiler(const std::optional<std::string>& library,
                                               std::vector<std::string> tokens, Named first_tokens,
                                               Named special_tokens, bool special_restarts) {
  VocabularyBytes vocabulary;
  vocabulary.tokens = std::move(tokens);
  vocabulary.first_tokens = std::move(first_tokens);
  vocabulary.special_tokens = std::move(special_tokens);
  vocabulary.special_restarts = special_restarts;
  const GilRelease release;
  if (!library) return std::make_unique<GrammarCompiler>(vocabulary);
  return std::make_unique<GrammarCompiler>(*library, vocabulary);
}

}  // namespace

void bind_grammar(py::module_& module) {
  py::native_enum<GrammarKind>(module, "GrammarKind", kEnumBase)
      .value("JSON_SCHEMA", GrammarKind::kJsonSchema)
      .value("REGEX", GrammarKind::kRegex)
      .value("LARK", GrammarKind::kLark)
      .value("LLGUIDANCE", GrammarKind::kLlguidance)
      .finalize();

  py::class_<TokenConstraint, std::shared_ptr<TokenConstraint>>(module, "TokenConstraint");

  module.def(
      "limit_thinking",
      [](std::vector<int32_t> begin, std::vector<int32_t> end, std::vector<int32_t> closing,
         int64_t max_tokens, std::shared_ptr<TokenConstraint> answer) {
        return limit_thinking({std::move(begin), std::move(end), std::move(closing), max_tokens},
                              std::move(answer));
      },
      py::kw_only(), py::arg("begin"), py::arg("end"), py::arg("closing"), py::arg("max_tokens"),
      py::arg("answer").none(true));

  using C = GrammarCompiler;
  py::class_<C>(module, "GrammarCompiler")
      .def(py::init(&make_compiler), py::arg("library").none(true), py::kw_only(),
           py::arg("tokens"), py::arg("first_tokens"), py::arg("special_tokens"),
           py::arg("special_restarts"))
      .def(
          "compile",
          [](const C& compiler, GrammarKind kind, const std::string& text) {
            const GilRelease release;
            return compiler.compile(kind, text);
          },
          py::arg("kind"), py::arg("text"))
      .def_property_readonly("library_version", &C::library_version);
}

}  // namespace headrace::python
