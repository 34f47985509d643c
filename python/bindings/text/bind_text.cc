#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.h"
#include "headrace/status.h"
#include "headrace/text.h"
#include "ids.h"
#include "utf8.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

using Ids = std::vector<int32_t>;

py::str str_of(const std::string& text) {
  PyObject* const made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

py::bytes bytes_of(const std::string& data) { return {data.data(), data.size()}; }

py::list list_of(const Ids& ids) {
  py::list list(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    PyObject* const id = PyLong_FromLong(ids[i]);
    if (id == nullptr) throw py::error_already_set();
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), id);
  }
  return list;
}

/// By byte of a text: how many characters are before it.
std::vector<uint32_t> characters_before(std::string_view text) {
  std::vector<uint32_t> before(text.size() + 1);
  uint32_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    before[i] = (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80 ? count - 1 : count++;
  }
  before[text.size()] = count;
  return before;
}

py::list encode(const Tokenizer& tokenizer, const py::str& text, bool add_special_tokens,
                bool special_as_text, size_t max_tokens) {
  const std::string_view utf8 = utf8_of(text);
  Ids ids;
  {
    const py::gil_scoped_release release;
    tokenizer.encode(utf8, {add_special_tokens, special_as_text, max_tokens}, &ids);
  }
  return list_of(ids);
}

py::tuple encode_with_offsets(const Tokenizer& tokenizer, const py::str& text,
                              bool add_special_tokens, bool special_as_text) {
  const std::string_view utf8 = utf8_of(text);
  Ids ids;
  std::vector<TextSpan> spans;
  std::vector<uint32_t> before;
  {
    const py::gil_scoped_release release;
    tokenizer.encode(utf8, {add_special_tokens, special_as_text, 0}, &ids, &spans);
    before = characters_before(utf8);
  }
  py::list offsets(spans.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    // A span that ends within a character ends behind it.
    const size_t end = spans[i].end;
    const bool inside = end < utf8.size() && (static_cast<uint8_t>(utf8[end]) & 0xC0) == 0x80;
    offsets[i] = py::make_tuple(before[spans[i].begin], before[end] + (inside ? 1 : 0));
  }
  return py::make_tuple(list_of(ids), offsets);
}

py::tuple join_pair(const Tokenizer& tokenizer, const Ids& first, const Ids& second) {
  Ids ids, types;
  tokenizer.join_pair(first, second, &ids, &types);
  return py::make_tuple(list_of(ids), list_of(types));
}

py::str decode(const Tokenizer& tokenizer, const py::iterable& numbers, bool skip_special_tokens) {
  const Ids ids = ids_of(numbers);
  std::string text;
  {
    const py::gil_scoped_release release;
    text = tokenizer.decode(ids, skip_special_tokens);
  }
  return str_of(text);
}

py::object spelling(const Tokenizer& tokenizer, const py::object& id) {
  const std::optional<std::string> text = tokenizer.spelling(id_of(id));
  return text ? py::object(str_of(*text)) : py::none();
}

py::list special(const Tokenizer& tokenizer) {
  py::list tokens;
  for (const SpecialToken& token : tokenizer.special()) {
    tokens.append(py::make_tuple(str_of(token.role), str_of(token.text), token.id));
  }
  return tokens;
}

/// Of all tokens: their bytes by id, those at the start of an output where they differ, the control
/// tokens, and whether the start's hold behind a control token, too.
py::tuple vocabulary_bytes(const Tokenizer& tokenizer) {
  VocabularyBytes bytes;
  {
    const py::gil_scoped_release release;
    bytes = tokenizer.token_bytes();
  }
  py::list tokens(bytes.tokens.size());
  for (size_t id = 0; id < bytes.tokens.size(); ++id) tokens[id] = bytes_of(bytes.tokens[id]);
  py::dict first;
  for (const auto& [id, data] : bytes.first_tokens) first[py::int_(id)] = bytes_of(data);
  py::dict special;
  for (const auto& [id, name] : bytes.special_tokens) special[py::int_(id)] = str_of(name);
  return py::make_tuple(tokens, first, special, bytes.special_restarts);
}

}  // namespace

void bind_text(py::module_& module) {
  // Ours is immutable, and holders of const are not what pybind11 makes.
  py::class_<Tokenizer, std::shared_ptr<Tokenizer>>(module, "TextTokenizer",
                                                    "The tokenizer of a model folder.")
      .def(py::init([](const std::string& folder) {
             const py::gil_scoped_release release;
             return std::const_pointer_cast<Tokenizer>(Tokenizer::load(folder));
           }),
           py::arg("folder"))
      .def("encode", &encode, py::arg("text"), py::arg("add_special_tokens") = false,
           py::arg("special_as_text") = false, py::arg("max_tokens") = 0, "The ids of a text.")
      .def("encode_with_offsets", &encode_with_offsets, py::arg("text"),
           py::arg("add_special_tokens") = false, py::arg("special_as_text") = false,
           "The ids of a text, and which of its characters each stands for.")
      .def("join_pair", &join_pair, py::arg("first"), py::arg("second"),
           "The ids of two texts as one, of the ids of each without special tokens; and their "
           "types.")
      .def("decode", &decode, py::arg("ids"), py::arg("skip_special_tokens") = false,
           "The text of ids.")
      .def("spelling", &spelling, py::arg("id"), "A token as the vocabulary spells it, or None.")
      .def(
          "id",
          [](const Tokenizer& tokenizer, const py::str& token) {
            return tokenizer.id(utf8_of(token));
          },
          py::arg("token"), "The id of a token, or None.")
      .def(
          "token_text",
          [](const Tokenizer& tokenizer, const py::object& id) {
            return str_of(tokenizer.token_text(id_of(id)));
          },
          py::arg("id"), "The text that a token adds in the middle of an output.")
      .def(
          "token_bytes",
          [](const Tokenizer& tokenizer, const py::object& id) {
            return bytes_of(tokenizer.token_bytes(id_of(id)));
          },
          py::arg("id"), "The bytes that it adds there, also those of a part of a character.")
      .def("vocabulary_bytes", &vocabulary_bytes,
           "The bytes that all ids add to a text, as headrace.text.token_bytes has them.")
      .def("special", &special, "Special tokens: role, text and id.")
      .def_property_readonly("longest_token", &Tokenizer::longest_token)
      .def("__len__", &Tokenizer::size);
}

}  // namespace headrace::python
