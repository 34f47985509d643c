#include "grammar/pattern/reader.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "text/regex/pattern/classes.h"

namespace headrace::grammar {

using text::CharSet;

namespace {

CharSet ranges(std::initializer_list<std::pair<char32_t, char32_t>> all) {
  CharSet out;
  for (const auto& [first, last] : all) out.add(first, last);
  return out;
}

CharSet words(bool ascii) {
  if (ascii) return ranges({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  CharSet out = text::word_set();
  out.add(0x200C, 0x200D);  // joiners
  return out;
}

CharSet unicode_words() { return words(false); }

CharSet negated(CharSet set, bool negative) {
  if (negative) set.negate();
  return set;
}

std::optional<CharSet> posix_set(std::string_view name) {
  if (name == "alnum") return ranges({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}});
  if (name == "alpha") return ranges({{'A', 'Z'}, {'a', 'z'}});
  if (name == "ascii") return ranges({{0, 0x7F}});
  if (name == "blank") return ranges({{'\t', '\t'}, {' ', ' '}});
  if (name == "cntrl") return ranges({{0, 0x1F}, {0x7F, 0x7F}});
  if (name == "digit") return ranges({{'0', '9'}});
  if (name == "graph") return ranges({{'!', '~'}});
  if (name == "lower") return ranges({{'a', 'z'}});
  if (name == "print") return ranges({{' ', '~'}});
  if (name == "punct") return ranges({{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}});
  if (name == "space") return ranges({{'\t', '\r'}, {' ', ' '}});
  if (name == "upper") return ranges({{'A', 'Z'}});
  if (name == "word") return words(true);
  if (name == "xdigit") return ranges({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  return std::nullopt;
}

}  // namespace

CharSet PatternReader::in_any_case(CharSet set, const PatternFlags& flags) {
  constexpr uint64_t kStepsOfAllCases = 2000;
  if (!flags.any_case) return set;
  const auto& all = set.ranges();
  if (all.size() == 1 && all.front().first == all.front().last) {
    for (const char32_t other : text::same_but_case(all.front().first)) set.add(other, other);
  } else {
    budget_.step(kStepsOfAllCases);
    text::close_over_case(&set);
  }
  return set;
}

std::string_view PatternReader::take_until(char end) {
  const size_t from = place();
  const std::optional<std::string_view> found = PatternCursor::take_until(end);
  if (!found) wrong(str_cat("a '", end, "' is missing"), from);
  return *found;
}

void PatternReader::skip_space(const PatternFlags& flags) {
  if (!flags.spaced) return;
  while (!done()) {
    const size_t before = place();
    const char32_t value = next();
    if (value == '#') {
      while (!done() && !take("\n")) next();
    } else if (!text::space_set().contains(value)) {
      go_back(before);
      return;
    }
  }
}

char32_t PatternReader::take_code(size_t digits, size_t place) {
  constexpr size_t kMostDigits = 8;
  const bool braces = take("{");
  const size_t begin = this->place();
  const std::optional<uint32_t> value = take_number(16, braces ? kMostDigits : digits);
  if (!value || (braces ? !take("}") : this->place() - begin != digits)) {
    wrong("this escape has no such number of digits", place);
  }
  if (*value > text::kLastChar || (*value >= 0xD800 && *value <= 0xDFFF)) {
    wrong("this escape is no character", place);
  }
  return *value;
}

std::optional<char32_t> PatternReader::take_char_escape(char32_t letter, size_t place) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return 7;
    case 'x':
      return take_code(2, place);
    case 'u':
      return take_code(4, place);
    case 'U':
      return take_code(8, place);
    case '0':
      if (ecma_ && (peek() < '0' || peek() > '9')) return 0;
      return std::nullopt;
    default:
      break;
  }
  const bool plain = letter < 0x80 && (letter == ' ' || posix_set("punct")->contains(letter));
  // \< and \> are ends of words.
  if (plain && letter != '<' && letter != '>') return letter;
  return std::nullopt;
}

std::optional<CharSet> PatternReader::take_class(char32_t letter, size_t place) {
  switch (letter) {
    case 'd':
    case 'D':
      return negated(ecma_ ? ranges({{'0', '9'}}) : text::digit_set(), letter == 'D');
    case 'w':
    case 'W':
      return negated(words(ecma_), letter == 'W');
    case 's':
    case 'S':
      return negated(text::space_set(), letter == 'S');
    case 'p':
    case 'P':
      return negated(take_property(place), letter == 'P');
    default:
      return std::nullopt;
  }
}

CharSet PatternReader::take_property(size_t place) {
  std::string name;
  if (take("{")) {
    name = take_until('}');
  } else if (!done()) {
    text::append_utf8(next(), &name);
  }
  const bool negative = name.starts_with('^');
  if (negative) name.erase(0, 1);
  constexpr std::array<std::string_view, 6> kKinds = {
      "sc", "script", "scx", "script_extensions", "gc", "general_category"};
  if (const size_t equals = name.find('='); equals != std::string::npos) {
    std::string kind = name.substr(0, equals);
    std::ranges::transform(kind, kind.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    });
    if (std::ranges::find(kKinds, kind) != kKinds.end()) name.erase(0, equals + 1);
  }
  const std::optional<CharSet> set = text::property_set(name, unicode_words);
  if (!set) unsupported("a property of that name", place);
  return negated(*set, negative);
}

std::variant<char32_t, CharSet> PatternReader::take_escape(bool in_brackets) {
  const size_t place = this->place() - 1;
  if (done()) wrong("a backslash at the end", place);
  const char32_t letter = next();
  if (in_brackets && ecma_ && letter == 'b') return char32_t{'\b'};
  if (const std::optional<char32_t> value = take_char_escape(letter, place)) return *value;
  if (std::optional<CharSet> set = take_class(letter, place)) {
    budget_.step(set->ranges().size());  // sets of Unicode are large
    return *std::move(set);
  }
  if (!in_brackets) {
    if (letter == 'b' || letter == 'B' || letter == '<' || letter == '>') {
      unsupported("an end of a word", place);
    }
    if (letter >= '1' && letter <= '9') unsupported("a back reference", place);
    if (letter == 'k') unsupported("a back reference", place);
  }
  unsupported("this escape", place);
}

bool PatternReader::take_posix(CharSet* out) {
  const size_t before = place();
  if (!take("[:")) return false;
  const bool negative = take("^");
  const size_t size = rest().find(":]");
  const std::optional<CharSet> set =
      size == std::string_view::npos ? std::nullopt : posix_set(rest().substr(0, size));
  if (!set) {
    go_back(before);
    return false;
  }
  go_back(place() + size + 2);
  out->add(negated(*set, negative));
  return true;
}

char32_t PatternReader::take_range_end(const PatternFlags& flags) {
  skip_space(flags);
  const size_t place = this->place();
  if (done()) wrong("brackets without their end", place);
  if (!take("\\")) return next();
  const auto found = take_escape(true);
  if (!std::holds_alternative<char32_t>(found)) wrong("a range that ends with a class", place);
  return std::get<char32_t>(found);
}

bool PatternReader::take_inner_set(const PatternFlags& flags, int depth, CharSet* out) {
  if (take_posix(out)) return true;
  if (!take("[")) return false;
  out->add(take_brackets(flags, depth + 1));
  return true;
}

void PatternReader::take_item(const PatternFlags& flags, int depth, CharSet* out) {
  const size_t place = this->place();
  if (!ecma_ && take_inner_set(flags, depth, out)) return;
  char32_t first = 0;
  if (take("\\")) {
    const auto found = take_escape(true);
    if (const auto* const set = std::get_if<CharSet>(&found)) {
      out->add(*set);
      return;
    }
    first = std::get<char32_t>(found);
  } else {
    first = next();
  }
  skip_space(flags);
  char32_t last = first;
  if (looking_at("-") && !looking_at("-]") && (ecma_ || !looking_at("--"))) {
    take("-");
    last = take_range_end(flags);
    if (last < first) wrong("a range whose end comes before its start", place);
  }
  out->add(first, last);
}

CharSet PatternReader::take_brackets(const PatternFlags& flags, int depth) {
  constexpr int kMostBrackets = 50;
  const size_t place = this->place();
  if (depth > kMostBrackets) wrong("brackets nested more than 50 deep", place);
  const bool negative = take("^");
  CharSet all;
  CharSet own;
  char32_t op = '|';
  const auto combine = [&] {
    own = in_any_case(own, flags);
    if (op == '|') {
      all.add(own);
    } else if (op == '&') {
      all.intersect(own);
    } else {
      CharSet both = all;
      both.intersect(own);
      if (op == '~') all.add(own);
      both.negate();
      all.intersect(both);
    }
    own = CharSet();
  };
  bool first = !ecma_;  // there "[]" matches nothing
  skip_space(flags);
  while (first || !take("]")) {
    if (done()) wrong("brackets without their end", place);
    const char32_t sign = peek();
    if (!ecma_ && !first && (take("&&") || take("--") || take("~~"))) {
      combine();
      op = sign;
    } else {
      take_item(flags, depth, &own);
    }
    first = false;
    skip_space(flags);
  }
  combine();
  return negated(all, negative);
}

}  // namespace headrace::grammar
