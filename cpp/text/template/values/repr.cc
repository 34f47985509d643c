#include "text/template/values/repr.h"

#include <charconv>
#include <cmath>

#include "text/template/values/chars.h"
#include "text/template/values/compare.h"
#include "text/template/values/dict.h"
#include "text/template/values/loop.h"
#include "text/unicode/python_case.h"

namespace headrace::text::jinja {

std::string_view macro_name(const MacroValue& macro) noexcept;  // run/evaluator.cc

namespace {

bool is_printable(char32_t c) noexcept { return c < 0x7F ? c >= 0x20 : python_is(c, kPyPrintable); }

void append_escaped(Builder* out, char32_t value) {
  if (value == '\n' || value == '\r' || value == '\t') {
    out->append(value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t");
  } else if (value < 0x100) {
    out->append("\\x");
    append_hex(out, value, 2);
  } else if (value < 0x10000) {
    out->append("\\u");
    append_hex(out, value, 4);
  } else {
    out->append("\\U");
    append_hex(out, value, 8);
  }
}

// Not inlined, as others below: what is called for each level of nesting shall take little stack.
[[gnu::noinline]] void append_quoted(Run& run, Builder* out, std::string_view text) {
  run.spend_bytes(text.size());
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out->append(quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t value = next_char(text, &at);
    if (value == static_cast<char32_t>(quote) || value == '\\') {
      out->append('\\');
      out->append(static_cast<char>(value));
    } else if (is_printable(value)) {
      out->append(text.substr(start, at - start));
    } else {
      append_escaped(out, value);
    }
  }
  out->append(quote);
}

void append_items(Run& run, Builder* out, const Value& over, std::string_view open,
                  std::string_view close) {
  const Deeper deeper(run);
  out->append(open);
  Cursor cursor(run, over);
  Value item;
  for (bool first = true; cursor.next(run, &item); first = false) {
    if (!first) {
      out->append(", ");
    }
    append_repr(run, out, item);
  }
  out->append(over.kind == Kind::kTuple && over.size == 1 ? ",)" : close);
}

void append_dict(Run& run, Builder* out, const Dict* dict) {
  const Deeper deeper(run);
  out->append('{');
  for (uint32_t i = 0; i < dict->count; ++i) {
    run.spend(1);
    if (i > 0) {
      out->append(", ");
    }
    append_repr(run, out, dict->entries[i].key);
    out->append(": ");
    append_repr(run, out, dict->entries[i].value);
  }
  out->append('}');
}

void append_range(Builder* out, const Range& range) {
  out->append("range(");
  append_int(out, range.start);
  out->append(", ");
  append_int(out, range.stop);
  if (range.step != 1) {
    out->append(", ");
    append_int(out, range.step);
  }
  out->append(')');
}

[[gnu::noinline]] void append_object(Run& run, Builder* out, const Value& value) {
  switch (value.kind) {
    case Kind::kView:
      out->append(type_name(value));
      return append_items(run, out, value, "([", "])");
    case Kind::kRange:
      return append_range(out, *value.range);
    case Kind::kNamespace:
      out->append("<Namespace ");
      append_dict(run, out, value.names);
      return out->append('>');
    case Kind::kMacro: {
      const std::string_view name = macro_name(*value.macro);
      out->append("<Macro ");
      if (name.empty()) {
        out->append("anonymous");
      } else {
        append_quoted(run, out, name);
      }
      return out->append('>');
    }
    case Kind::kLoop:
      out->append("<LoopContext ");
      append_int(out, value.loop->index0 + 1);
      out->append('/');
      append_int(out, value.loop->length(run));
      return out->append('>');
    case Kind::kMethod:
    case Kind::kFunction:
      fail({"a function or method can't be printed: are its parentheses missing?"});
    default:
      fail({"what a filter like map or select gives can't be printed: use |list or |join"});
  }
}

}  // namespace

void append_hex(Builder* out, char32_t value, int digits) {
  for (int i = digits - 1; i >= 0; --i) {
    out->append("0123456789abcdef"[value >> (4 * i) & 15]);
  }
}

[[gnu::noinline]] void append_int(Builder* out, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out->append({digits, static_cast<size_t>(end - digits)});
}

[[gnu::noinline]] void append_float(Builder* out, double value) {
  if (!std::isfinite(value)) {
    out->append(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    return;
  }
  char text[40];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  std::string_view digits(text, static_cast<size_t>(end - text));
  const size_t e = digits.find('e');
  int exponent = 0;
  const char* const from = digits.data() + e + (digits[e + 1] == '+' ? 2 : 1);
  std::from_chars(from, digits.data() + digits.size(), exponent);
  if (exponent >= -4 && exponent < 16) {
    char fixed[64];
    const auto stop =
        std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
    const std::string_view plain(fixed, static_cast<size_t>(stop - fixed));
    out->append(plain);
    if (plain.find('.') == std::string_view::npos) {
      out->append(".0");
    }
    return;
  }
  out->append(digits);  // 1e+20, with two digits of the exponent at least
}

void append_repr(Run& run, Builder* out, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kMissing:
      return out->append("Undefined");
    case Kind::kNone:
      return out->append("None");
    case Kind::kBool:
      return out->append(value.boolean ? "True" : "False");
    case Kind::kInt:
      return append_int(out, value.integer);
    case Kind::kBigInt:
      return out->append(value.text());
    case Kind::kFloat:
      return append_float(out, value.real);
    case Kind::kString:
      if (value.tag == kMarkup) {
        out->append("Markup(");
      }
      append_quoted(run, out, value.text());
      return out->append(value.tag == kMarkup ? ")" : "");
    case Kind::kList:
      return append_items(run, out, value, "[", "]");
    case Kind::kTuple:
      return append_items(run, out, value, "(", ")");
    case Kind::kDict:
      return append_dict(run, out, value.dict);
    default:
      return append_object(run, out, value);
  }
}

void append_str(Run& run, Builder* out, const Value& value) {
  if (value.is_string()) {
    run.spend_bytes(value.size);
    out->append(value.text());
  } else if (!value.is_undefined() && !value.is_missing()) {
    append_repr(run, out, value);
  }
}

Value str_of(Run& run, const Value& value) {
  if (value.is_string()) {
    return Value::of(value.text());
  }
  Builder out(run);
  append_str(run, &out, value);
  return out.value();
}

Value repr_of(Run& run, const Value& value) {
  Builder out(run);
  append_repr(run, &out, value);
  return out.value();
}

size_t find_text(Run& run, std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size() || wanted.size() > text.size() - from) {
    return std::string_view::npos;
  }
  if (wanted.empty()) {
    return from;
  }
  // memchr for the first byte; each candidate may cost the whole of what is wanted.
  const size_t last = text.size() - wanted.size();
  for (size_t at = from; at <= last; ++at) {
    const void* const found = std::memchr(text.data() + at, wanted[0], last - at + 1);
    if (found == nullptr) {
      run.spend((last - at) / 64 + 1);
      return std::string_view::npos;
    }
    const size_t start = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    run.spend((start - at) / 64 + wanted.size() / 16 + 1);
    if (std::memcmp(text.data() + start, wanted.data(), wanted.size()) == 0) {
      return start;
    }
    at = start;
  }
  return std::string_view::npos;
}

Value escaped(Run& run, const Value& value) {
  if (value.is_markup()) {
    return value;
  }
  const std::string_view text = str_of(run, value).text();
  run.spend_bytes(text.size());
  Builder out(run);
  for (const char byte : text) {
    switch (byte) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&#34;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.append(byte);
    }
  }
  return out.value(kMarkup);
}

}  // namespace headrace::text::jinja
