#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "headrace/text.h"
#include "headrace/text_output.h"
#include "ids.h"
#include "utf8.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

/// A lone surrogate raises UnicodeEncodeError.
std::vector<std::string> texts_of(const std::vector<py::str>& strings) {
  std::vector<std::string> texts;
  texts.reserve(strings.size());
  for (const py::str& string : strings) texts.emplace_back(utf8_of(string));
  return texts;
}

std::unique_ptr<StopStrings> make_stop_strings(const std::vector<py::str>& strings) {
  return std::make_unique<StopStrings>(std::span<const std::string>(texts_of(strings)));
}

Detokenizer make_detokenizer(const Tokenizer* tokenizer, bool skip_special_tokens,
                             const std::vector<py::str>& shown, const py::iterable& after) {
  if (tokenizer == nullptr) return Detokenizer();
  return Detokenizer(*tokenizer, {.skip_special_tokens = skip_special_tokens,
                                  .shown = texts_of(shown),
                                  .after = ids_of(after)});
}

std::unique_ptr<OutputText> make_output_text(const Detokenizer& detokenizer,
                                             const StopStrings* stops, size_t min_tokens,
                                             bool keeps_string, bool cuts_tokens) {
  return std::make_unique<OutputText>(
      detokenizer, stops == nullptr ? std::nullopt : std::optional(*stops),
      OutputTextOptions{
          .min_tokens = min_tokens, .keeps_string = keeps_string, .cuts_tokens = cuts_tokens});
}

}  // namespace

// The GIL stays: a call takes less than giving it up does.
void bind_text_output(py::module_& module) {
  py::class_<StopMatch>(module, "StopMatch",
                        "Where a stop string was found, in characters of the output.")
      .def_readonly("string", &StopMatch::string)
      .def_readonly("start", &StopMatch::start_char)
      .def_readonly("end", &StopMatch::end_char);

  py::class_<StopStrings>(module, "StopStrings", "A set of stop strings, none empty.")
      .def(py::init(&make_stop_strings), py::arg("strings"));

  py::class_<Detokenizer>(module, "Detokenizer",
                          "Turns the ids of one output into text; without a tokenizer, into none.")
      .def(py::init(&make_detokenizer), py::arg("tokenizer").none(true) = py::none(),
           py::arg("skip_special_tokens") = true, py::arg("shown") = std::vector<py::str>(),
           py::arg("after") = py::tuple())
      .def("push", &Detokenizer::push, py::arg("token_id"), "The text that this id settles.")
      .def("finish", &Detokenizer::finish, "The text still held back, after the last id.")
      .def_property_readonly("holding", &Detokenizer::holding)
      .def_property_readonly("streams", &Detokenizer::streams, "False: finish() gives all text.");

  py::class_<OutputText>(module, "OutputText", "The text of one output, which stop strings end.")
      .def(py::init(&make_output_text), py::arg("detokenizer"),
           py::arg("stops").none(true) = py::none(), py::kw_only(), py::arg("min_tokens") = 0,
           py::arg("keeps_string") = false, py::arg("cuts_tokens") = true)
      .def("push", &OutputText::push, py::arg("token_id"), py::arg("has_text") = true,
           "The text that can go out now.")
      .def("finish", &OutputText::finish, "What was held back, unless a stop string takes it.")
      .def_property_readonly("match", &OutputText::match,
                             "The stop string that ended the output, or None.")
      .def_property_readonly("released", &OutputText::released,
                             "How many of the first tokens are sure to be part of the output.");
}

}  // namespace headrace::python
