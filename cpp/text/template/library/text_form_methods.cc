#include "text/template/format/format.h"
#include "text/template/library/arguments.h"
#include "text/template/library/letters.h"
#include "text/template/library/tables.h"
#include "text/template/library/texts.h"
#include "text/template/values/chars.h"
#include "text/template/values/dict.h"

namespace headrace::text::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value method_change(Run& run, Value self, const Given&) {
  return changed_text<kChange>(run, self);
}

template <int kSides>
Value method_strip(Run& run, Value self, const Given& given) {
  return stripped(run, self, given.positional[0], kSides);
}

template <int kWhere>
Value method_pad(Run& run, Value self, const Given& given) {
  const Value fill = given.positional[1].is_missing() ? Value::of(" ") : given.positional[1];
  if (char_count(text_argument(fill, "the fill character")) != 1) {
    fail({"TypeError: The fill character must be exactly one character long"});
  }
  const Value by = self.is_markup() ? escaped(run, fill) : fill;
  if (by.size != fill.size) {
    fail({"TypeError: The fill character must be exactly one character long"});
  }
  return padded(run, self, int_argument(given.positional[0], 0), fill.text(), kWhere);
}

Value method_zfill(Run& run, Value self, const Given& given) {
  const std::string_view text = self.text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const int64_t width = int_argument(given.positional[0], 0);
  run.spend_bytes(text.size());
  const int64_t length = static_cast<int64_t>(char_count(text));
  if (width <= length) {
    return self;
  }
  Builder out(run);
  out.append(text.substr(0, sign));
  out.append_times("0", static_cast<uint64_t>(width - length));
  out.append(text.substr(sign));
  return out.value(self.tag);
}

Value method_expandtabs(Run& run, Value self, const Given& given) {
  const int64_t tab = int_argument(given.positional[0], 8);
  run.spend_bytes(self.size);
  Builder out(run);
  int64_t column = 0;
  for (const char byte : self.text()) {
    if (byte == '\t') {
      const int64_t spaces = tab > 0 ? tab - column % tab : 0;
      out.append_times(" ", static_cast<uint64_t>(spaces));
      column += spaces;
      continue;
    }
    out.append(byte);
    column = byte == '\n' || byte == '\r' ? 0 : column + ((byte & 0xC0) != 0x80);
  }
  return out.value(self.tag);
}

Value method_replace(Run& run, Value self, const Given& given) {
  const std::string_view old = text_argument(given.positional[0], "replace() argument 1");
  text_argument(given.positional[1], "replace() argument 2");
  const Value by = self.is_markup() ? escaped(run, given.positional[1]) : given.positional[1];
  return Value::of(
      replaced(run, self.text(), old, by.text(), int_argument(given.positional[2], -1)).text(),
      self.tag);
}

Value method_removeprefix(Run& run, Value self, const Given& given) {
  const std::string_view affix = text_argument(given.positional[0], "a prefix");
  run.spend_bytes(affix.size());
  const bool has = self.text().starts_with(affix);
  return Value::of(self.text().substr(has ? affix.size() : 0), self.tag);
}

Value method_removesuffix(Run& run, Value self, const Given& given) {
  const std::string_view affix = text_argument(given.positional[0], "a suffix");
  run.spend_bytes(affix.size());
  const bool has = self.text().ends_with(affix);
  return Value::of(self.text().substr(0, self.size - (has ? affix.size() : 0)), self.tag);
}

Value method_join(Run& run, Value self, const Given& given) {
  if (!self.is_markup()) {
    return joined(run, self.text(), given.positional[0], false, Value());
  }
  ListBuilder parts(run);
  Cursor cursor(run, given.positional[0]);
  Value item;
  while (cursor.next(run, &item)) {
    parts.add(escaped(run, item));
  }
  return Value::of(joined(run, self.text(), parts.value(), false, Value()).text(), kMarkup);
}

Value method_format(Run& run, Value self, const Given& given) {
  return format_braces(run, self, given);
}

Value method_format_map(Run& run, Value self, const Given& given) {
  const Value& map = given.positional[0];
  if (map.kind != Kind::kDict) {
    fail({"TypeError: format_map() takes a dict, not ", type_name(map)});
  }
  const Dict* const dict = map.dict;
  NamedValue* const named = run.arena.array<NamedValue>(dict->count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < dict->count; ++i) {
    if (dict->entries[i].key.is_string()) {
      named[count++] = {dict->entries[i].key.text(), dict->entries[i].value};
    }
  }
  return format_braces(run, self, {nullptr, 0, named, count});
}

Value not_offered(Run&, Value, const Given&) {
  fail_unsupported(0, {"the methods encode, translate, maketrans, striptags and unescape"});
}

}  // namespace

Table text_form_methods() {
  static constexpr Builtin kMethods[] = {
      {"capitalize", method_change<python_capitalize>},
      {"casefold", method_change<python_casefold>},
      {"center", method_pad<0>, "width fillchar", 1, 2},
      {"encode", not_offered, "*"},
      {"expandtabs", method_expandtabs, "tabsize"},
      {"format", method_format, "*"},
      {"format_map", method_format_map, "mapping", 1, 1},
      {"join", method_join, "iterable", 1, 1},
      {"ljust", method_pad<1>, "width fillchar", 1, 2},
      {"lower", method_change<python_lower>},
      {"lstrip", method_strip<1>, "chars", 0, 1},
      {"maketrans", not_offered, "*"},
      {"removeprefix", method_removeprefix, "prefix", 1, 1},
      {"removesuffix", method_removesuffix, "suffix", 1, 1},
      {"replace", method_replace, "old new count", 2, 3},
      {"rjust", method_pad<2>, "width fillchar", 1, 2},
      {"rstrip", method_strip<2>, "chars", 0, 1},
      {"strip", method_strip<3>, "chars", 0, 1},
      {"swapcase", method_change<python_swapcase>},
      {"title", method_change<python_title>},
      {"translate", not_offered, "*"},
      {"upper", method_change<python_upper>},
      {"zfill", method_zfill, "width", 1, 1},
  };
  return kMethods;
}

}  // namespace headrace::text::jinja
