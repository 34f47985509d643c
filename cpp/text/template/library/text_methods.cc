#include <algorithm>

#include "text/template/library/arguments.h"
#include "text/template/library/letters.h"
#include "text/template/library/tables.h"
#include "text/template/library/texts.h"
#include "text/template/values/chars.h"

namespace headrace::text::jinja {
namespace {

/// The last place of `wanted`, or npos.
size_t rfind_text(Run& run, std::string_view text, std::string_view wanted) {
  if (wanted.empty() || wanted.size() > text.size()) {
    return wanted.empty() ? text.size() : std::string_view::npos;
  }
  for (size_t at = text.size() - wanted.size();; --at) {
    const size_t found = text.rfind(wanted[0], at);
    const bool none = found == std::string_view::npos;
    run.spend((at - (none ? 0 : found)) / 16 + wanted.size() / 16 + 1);
    if (none || text.substr(found, wanted.size()) == wanted) {
      return found;
    }
    if (found == 0) {
      return std::string_view::npos;
    }
    at = found;
  }
}

/// The part of a text that start and end, in characters, leave.
struct Part {
  std::string_view text;
  int64_t offset = 0;  ///< in characters
  bool none = false;   ///< start lies behind the end
};

Part part_of(Run& run, std::string_view text, const Value& start, const Value& end) {
  Part part{text};
  if (!is_given(start) && !is_given(end)) {
    return part;
  }
  run.spend_bytes(text.size());
  const int64_t length = static_cast<int64_t>(char_count(text));
  const auto bound = [&](const Value& value, int64_t otherwise) {
    const int64_t place = is_given(value) ? int_argument(value, 0) : otherwise;
    return place < 0 ? std::max<int64_t>(place + length, 0) : place;
  };
  const int64_t first = bound(start, 0);
  const int64_t last = std::min(bound(end, length), length);
  if (first > last) {
    part.text = {};
    part.none = true;
    return part;
  }
  const size_t from = byte_of_char(text, static_cast<size_t>(first));
  part.text = text.substr(from, byte_of_char(text.substr(from), static_cast<size_t>(last - first)));
  part.offset = first;
  return part;
}

int64_t found_at(Run& run, const Value& self, const Given& given, bool last) {
  const std::string_view wanted = text_argument(given.positional[0], "what is looked for");
  const Part part = part_of(run, self.text(), given.positional[1], given.positional[2]);
  if (part.none) {
    return -1;
  }
  size_t at = std::string_view::npos;
  if (last) {
    at = rfind_text(run, part.text, wanted);
  } else {
    at = find_text(run, part.text, wanted, 0);
  }
  if (at == std::string_view::npos) {
    return -1;
  }
  return part.offset + static_cast<int64_t>(char_count(part.text.substr(0, at)));
}

Value method_find(Run& run, Value self, const Given& given) {
  return Value::of(found_at(run, self, given, false));
}
Value method_rfind(Run& run, Value self, const Given& given) {
  return Value::of(found_at(run, self, given, true));
}
Value index_or_fail(int64_t place) {
  if (place < 0) {
    fail({"ValueError: substring not found"});
  }
  return Value::of(place);
}
Value method_index(Run& run, Value self, const Given& given) {
  return index_or_fail(found_at(run, self, given, false));
}
Value method_rindex(Run& run, Value self, const Given& given) {
  return index_or_fail(found_at(run, self, given, true));
}

Value method_count(Run& run, Value self, const Given& given) {
  const std::string_view wanted = text_argument(given.positional[0], "what is looked for");
  const Part part = part_of(run, self.text(), given.positional[1], given.positional[2]);
  if (part.none) {
    return Value::of(int64_t{0});
  }
  if (wanted.empty()) {
    run.spend_bytes(part.text.size());
    return Value::of(static_cast<int64_t>(char_count(part.text)) + 1);
  }
  int64_t count = 0;
  for (size_t at = 0; (at = find_text(run, part.text, wanted, at)) != std::string_view::npos;
       at += wanted.size()) {
    ++count;
  }
  return Value::of(count);
}

bool has_affix(Run& run, const Part& part, const Value& affix, bool at_end) {
  if (affix.kind == Kind::kTuple) {
    for (uint32_t i = 0; i < affix.size; ++i) {
      run.spend(1);
      if (!affix.items[i].is_string()) {
        fail({"TypeError: tuple for startswith or endswith must only contain str, not ",
              type_name(affix.items[i])});
      }
      if (has_affix(run, part, affix.items[i], at_end)) {
        return true;
      }
    }
    return false;
  }
  if (!affix.is_string()) {
    fail({"TypeError: ", at_end ? "endswith" : "startswith",
          " first arg must be str or a tuple of str, not ", type_name(affix)});
  }
  run.spend_bytes(affix.size);
  if (part.none) {
    return false;
  }
  return at_end ? part.text.ends_with(affix.text()) : part.text.starts_with(affix.text());
}

Value method_startswith(Run& run, Value self, const Given& given) {
  const Part part = part_of(run, self.text(), given.positional[1], given.positional[2]);
  return Value::of(has_affix(run, part, given.positional[0], false));
}
Value method_endswith(Run& run, Value self, const Given& given) {
  const Part part = part_of(run, self.text(), given.positional[1], given.positional[2]);
  return Value::of(has_affix(run, part, given.positional[0], true));
}

Value split_at_space(Run& run, const Value& self, int64_t most) {
  ListBuilder parts(run);
  std::string_view rest = strip_space_left(self.text());
  while (!rest.empty()) {
    run.spend(1);
    if (most >= 0 && static_cast<int64_t>(parts.count()) >= most) {
      parts.add(Value::of(strip_space_right(rest), self.tag));
      break;
    }
    size_t end = 0;
    for (size_t next = 0; end < rest.size(); end = next) {
      if (is_space(next_char(rest, &next))) {
        break;
      }
    }
    parts.add(Value::of(rest.substr(0, end), self.tag));
    rest = strip_space_left(rest.substr(end));
  }
  return parts.value();
}

Value rsplit_at_space(Run& run, const Value& self, int64_t most) {
  ListBuilder parts(run);
  std::string_view rest = strip_space_right(self.text());
  while (!rest.empty()) {
    run.spend(1);
    if (most >= 0 && static_cast<int64_t>(parts.count()) >= most) {
      parts.add(Value::of(strip_space_left(rest), self.tag));
      break;
    }
    size_t start = rest.size();
    while (start > 0) {
      const size_t before = char_before(rest, start);
      size_t at = before;
      if (is_space(next_char(rest, &at))) {
        break;
      }
      start = before;
    }
    parts.add(Value::of(rest.substr(start), self.tag));
    rest = strip_space_right(rest.substr(0, start));
  }
  std::reverse(parts.items(), parts.items() + parts.count());
  return parts.value();
}

Value split(Run& run, const Value& self, const Given& given, bool from_end) {
  const Value& by = given.positional[0];
  const int64_t most = int_argument(given.positional[1], -1);
  run.spend_bytes(self.size);
  if (!is_given(by)) {
    return from_end ? rsplit_at_space(run, self, most) : split_at_space(run, self, most);
  }
  const std::string_view separator = text_argument(by, "a separator");
  if (separator.empty()) {
    fail({"ValueError: empty separator"});
  }
  ListBuilder parts(run);
  std::string_view rest = self.text();
  while (most < 0 || static_cast<int64_t>(parts.count()) < most) {
    run.spend(1);
    size_t at = 0;
    if (from_end) {
      at = rfind_text(run, rest, separator);
    } else {
      at = find_text(run, rest, separator, 0);
    }
    if (at == std::string_view::npos) {
      break;
    }
    const size_t behind = at + separator.size();
    parts.add(Value::of(from_end ? rest.substr(behind) : rest.substr(0, at), self.tag));
    rest = from_end ? rest.substr(0, at) : rest.substr(behind);
  }
  parts.add(Value::of(rest, self.tag));
  if (from_end) {
    std::reverse(parts.items(), parts.items() + parts.count());
  }
  return parts.value();
}

Value method_split(Run& run, Value self, const Given& given) {
  return split(run, self, given, false);
}
Value method_rsplit(Run& run, Value self, const Given& given) {
  return split(run, self, given, true);
}
Value method_splitlines(Run& run, Value self, const Given& given) {
  return split_lines(run, self, flag_argument(run, given.positional[0]));
}

Value partition(Run& run, const Value& self, const Given& given, bool last) {
  const std::string_view separator = text_argument(given.positional[0], "a separator");
  if (separator.empty()) {
    fail({"ValueError: empty separator"});
  }
  const std::string_view text = self.text();
  const size_t at = last ? rfind_text(run, text, separator) : find_text(run, text, separator, 0);
  Value* const parts = run.arena.array<Value>(3);
  if (at != std::string_view::npos) {
    parts[0] = Value::of(text.substr(0, at), self.tag);
    parts[1] = Value::of(separator, self.tag);
    parts[2] = Value::of(text.substr(at + separator.size()), self.tag);
  } else {
    parts[0] = parts[1] = parts[2] = Value::of(std::string_view(), self.tag);
    parts[last ? 2 : 0] = self;
  }
  return Value::sequence(Kind::kTuple, parts, 3);
}

Value method_partition(Run& run, Value self, const Given& given) {
  return partition(run, self, given, false);
}
Value method_rpartition(Run& run, Value self, const Given& given) {
  return partition(run, self, given, true);
}

template <uint16_t kFlags>
Value method_all(Run& run, Value self, const Given&) {
  run.spend_bytes(self.size);
  return Value::of(python_all(self.text(), kFlags));
}
template <bool (*kIs)(std::string_view) noexcept>
Value method_is(Run& run, Value self, const Given&) {
  run.spend_bytes(self.size);
  return Value::of(kIs(self.text()));
}
Value method_isprintable(Run& run, Value self, const Given&) {
  run.spend_bytes(self.size);
  return Value::of(self.size == 0 || python_all(self.text(), kPyPrintable));
}
Value method_isidentifier(Run&, Value, const Given&) {
  fail_unsupported(0, {"the method isidentifier"});
}

}  // namespace

Table text_methods() {
  static constexpr Builtin kMethods[] = {
      {"count", method_count, "sub start end", 1, 3},
      {"endswith", method_endswith, "suffix start end", 1, 3},
      {"find", method_find, "sub start end", 1, 3},
      {"index", method_index, "sub start end", 1, 3},
      {"isalnum", method_all<kPyAlpha | kPyNumeric>},
      {"isalpha", method_all<kPyAlpha>},
      {"isascii", method_is<is_ascii>},
      {"isdecimal", method_all<kPyDecimal>},
      {"isdigit", method_all<kPyDigit>},
      {"isidentifier", method_isidentifier},
      {"islower", method_is<python_islower>},
      {"isnumeric", method_all<kPyNumeric>},
      {"isprintable", method_isprintable},
      {"isspace", method_all<kPySpace>},
      {"istitle", method_is<python_istitle>},
      {"isupper", method_is<python_isupper>},
      {"partition", method_partition, "sep", 1, 1},
      {"rfind", method_rfind, "sub start end", 1, 3},
      {"rindex", method_rindex, "sub start end", 1, 3},
      {"rpartition", method_rpartition, "sep", 1, 1},
      {"rsplit", method_rsplit, "sep maxsplit"},
      {"split", method_split, "sep maxsplit"},
      {"splitlines", method_splitlines, "keepends"},
      {"startswith", method_startswith, "prefix start end", 1, 3},
  };
  return kMethods;
}

}  // namespace headrace::text::jinja
