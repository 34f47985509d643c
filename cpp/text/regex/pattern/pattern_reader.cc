#include "text/regex/pattern/pattern_reader.h"

#include "text/regex/pattern/classes.h"

namespace headrace::text {

std::string_view PatternReader::shown() const {
  constexpr size_t kShown = 60;
  size_t size = std::min(pattern().size(), kShown);
  while (size > 0 && size < pattern().size() && utf8_continues(pattern()[size])) {
    --size;
  }
  return pattern().substr(0, size);
}

namespace {

/// \xHH, \x{H..}, \uHHHH, behind the letter.
char32_t take_code(PatternReader* reader, bool is_u) {
  const size_t place = reader->place();
  std::optional<uint32_t> value;
  if (is_u) {
    value = reader->take_number(16, 4, kLastChar);
    if (!value || reader->place() != place + 4) {
      reader->wrong("\\u needs four hexadecimal digits", place);
    }
  } else if (reader->take("{")) {
    value = reader->take_number(16, 8, kLastChar);
    if (!value || !reader->take("}")) {
      reader->unsupported("\\x{..} other than with one character's number", place);
    }
  } else {
    value = reader->take_number(16, 2, 0x7F);
    if (!value) {
      reader->unsupported("\\x of a byte, or without digits", place);
    }
  }
  if (*value >= 0xD800 && *value <= 0xDFFF) {
    reader->wrong("a surrogate is no character", place);
  }
  return *value;
}

CharSet take_property(PatternReader* reader, bool negative, CharSet (*words)()) {
  const size_t place = reader->place();
  negative = reader->take("^") != negative;
  const std::optional<std::string_view> name = reader->take_until('}');
  if (!name) {
    reader->wrong("\\p{ without its end", place);
  }
  std::optional<CharSet> set = property_set(*name, words);
  if (!set) {
    reader->unsupported("a property of that name", place);
  }
  if (negative) {
    set->negate();
  }
  return std::move(*set);
}

}  // namespace

std::optional<char32_t> take_escaped_char(PatternReader* reader) {
  const size_t place = reader->place();
  if (reader->done()) {
    reader->wrong("it ends with a backslash", place);
  }
  const char32_t letter = reader->next();
  switch (letter) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1B;
    case 'x':
    case 'u':
      return take_code(reader, letter == 'u');
    case '0':
      return reader->take_number(8, 2, 0x7F).value_or(0);
    case 'c':
    case 'C':
    case 'M':
      reader->unsupported("control and meta characters", place);
    default:
      break;
  }
  const bool special =
      (letter >= '1' && letter <= '9') ||
      (letter < 0x80 &&
       std::string_view("ABDGHKNORSWXYZbdghkpPswyz").find(static_cast<char>(letter)) !=
           std::string_view::npos);
  if (special) {
    reader->go_back(place);
    return std::nullopt;
  }
  return letter;
}

std::optional<CharSet> take_escaped_set(PatternReader* reader, CharSet (*words)()) {
  const size_t place = reader->place();
  const char32_t letter = reader->next();
  if ((letter == 'p' || letter == 'P') && reader->take("{")) {
    return take_property(reader, letter == 'P', words);
  }
  const char32_t small = letter | 0x20;
  CharSet set;
  if (small == 'd') {
    set = digit_set();
  } else if (small == 'w') {
    set = words();
  } else if (small == 's') {
    set = space_set();
  } else if (small == 'h') {
    set = hex_set();
  } else {
    reader->go_back(place);
    return std::nullopt;
  }
  if (letter != small) {
    set.negate();
  }
  return set;
}

}  // namespace headrace::text
