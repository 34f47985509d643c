#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "headrace/grammar.h"
#include "headrace/status.h"
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

/// The ids below `ids` that may come next, and whether the output may end.
std::pair<std::vector<int32_t>, bool> next_tokens(TokenMatcher& matcher, int32_t ids) {
  const GilRelease release;
  if (ids < 0) {
    throw Error(ErrorCode::kInvalidArgument, "ids must be 0 or more, got " + std::to_string(ids));
  }
  std::vector<uint32_t> allowed((static_cast<size_t>(ids) + 31) / 32);
  const bool may_end = matcher.next(allowed);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < ids; ++token) {
    if ((allowed[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0) {
      tokens.push_back(token);
    }
  }
  return {std::move(tokens), may_end};
}

}  // namespace

void bind_grammar(py::module_& module) {
  py::native_enum<GrammarKind>(module, "GrammarKind", kEnumBase)
      .value("JSON_SCHEMA", GrammarKind::kJsonSchema)
      .value("REGEX", GrammarKind::kRegex)
      .value("LARK", GrammarKind::kLark)
      .value("LLGUIDANCE", GrammarKind::kLlguidance)
      .finalize();

  py::class_<TokenMatcher>(module, "TokenMatcher")
      .def("next", &next_tokens, py::arg("ids"))
      .def(
          "append",
          [](TokenMatcher& matcher, int32_t token) {
            const GilRelease release;
            matcher.append(token);
          },
          py::arg("token"));

  py::class_<TokenConstraint, std::shared_ptr<TokenConstraint>>(module, "TokenConstraint")
      .def("start", [](const TokenConstraint& constraint) {
        const GilRelease release;
        return constraint.start();
      });

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
