#include <algorithm>
#include <cmath>
#include <vector>

#include "text/template/json_values/json.h"
#include "text/template/values/chars.h"
#include "text/template/values/compare.h"
#include "text/template/values/dict.h"
#include "text/template/values/repr.h"

namespace headrace::text::jinja {
namespace {

class Writer {
 public:
  Writer(Run& run, const JsonForm& form) : run_(run), form_(form), out_(run) {}

  void value(const Value& value);
  Value result() const { return out_.value(); }

 private:
  void list(const Value& value);
  void dict(const Dict* dict);
  void key(const Value& key);
  void string(std::string_view text);
  void escape(char32_t character);
  void real(double value);
  void newline() {
    if (form_.indented) {
      out_.append('\n');
      out_.append_times(form_.indent, level_);
    }
  }

  Run& run_;
  const JsonForm& form_;
  Builder out_;
  uint64_t level_ = 0;
};

void Writer::value(const Value& value) {
  run_.spend(1);
  switch (value.kind) {
    case Kind::kNone:
      return out_.append("null");
    case Kind::kBool:
      return out_.append(value.boolean ? "true" : "false");
    case Kind::kInt:
      return append_int(&out_, value.integer);
    case Kind::kBigInt:
      return out_.append(value.text());
    case Kind::kFloat:
      return real(value.real);
    case Kind::kString:
      return string(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return list(value);
    case Kind::kDict:
      return dict(value.dict);
    default:
      fail({"TypeError: Object of type ", type_name(value), " is not JSON serializable"});
  }
}

void Writer::real(double value) {
  if (std::isfinite(value)) {
    append_float(&out_, value);
  } else {
    out_.append(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
  }
}

void Writer::list(const Value& value) {
  if (value.size == 0) {
    return out_.append("[]");
  }
  const Deeper deeper(run_);
  out_.append('[');
  ++level_;
  for (uint32_t i = 0; i < value.size; ++i) {
    if (i > 0) {
      out_.append(form_.between_items);
    }
    newline();
    this->value(value.items[i]);
  }
  --level_;
  newline();
  out_.append(']');
}

void Writer::dict(const Dict* dict) {
  if (dict->count == 0) {
    return out_.append("{}");
  }
  const Deeper deeper(run_);
  const DictEntry* entries = dict->entries;
  if (form_.sort_keys) {
    run_.spend_bytes(dict->count * sizeof(DictEntry));
    DictEntry* const sorted = run_.arena.array<DictEntry>(dict->count);
    std::copy(entries, entries + dict->count, sorted);
    std::stable_sort(sorted, sorted + dict->count, [&](const DictEntry& a, const DictEntry& b) {
      return less(run_, a.key, b.key, "<");
    });
    entries = sorted;
  }
  out_.append('{');
  ++level_;
  for (uint32_t i = 0; i < dict->count; ++i) {
    if (i > 0) {
      out_.append(form_.between_items);
    }
    newline();
    key(entries[i].key);
    out_.append(form_.behind_key);
    value(entries[i].value);
  }
  --level_;
  newline();
  out_.append('}');
}

void Writer::key(const Value& key) {
  switch (key.kind) {
    case Kind::kString:
      return string(key.text());
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      out_.append('"');
      value(key);
      return out_.append('"');
    default:
      fail({"TypeError: keys must be str, int, float, bool or None, not ", type_name(key)});
  }
}

void Writer::escape(char32_t character) {
  static constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
  static constexpr std::string_view kLetters = "\"\\nrtfb";
  const size_t named =
      character < 0x80 ? kNamed.find(static_cast<char>(character)) : std::string_view::npos;
  if (named != std::string_view::npos) {
    out_.append('\\');
    return out_.append(kLetters[named]);
  }
  const auto unit = [&](char32_t value) {
    out_.append("\\u");
    append_hex(&out_, value, 4);
  };
  if (character >= 0x10000) {
    unit(0xD800 + ((character - 0x10000) >> 10));
    character = 0xDC00 + ((character - 0x10000) & 0x3FF);
  }
  unit(character);
}

void Writer::string(std::string_view text) {
  run_.spend_bytes(text.size());
  out_.append('"');
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const uint8_t byte = static_cast<uint8_t>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !form_.ascii)) {
      ++at;
      continue;
    }
    out_.append(text.substr(plain, at - plain));
    escape(next_char(text, &at));
    plain = at;
  }
  out_.append(text.substr(plain));
  out_.append('"');
}

}  // namespace

Value to_json(Run& run, const Value& value, const JsonForm& form) {
  Writer writer(run, form);
  writer.value(value);
  return writer.result();
}

}  // namespace headrace::text::jinja
