#include <string>
#include <utility>

#include "grammar/pattern/reader.h"
#include "grammar/pattern/syntax.h"

namespace headrace::grammar {

using text::CharSet;
using Kind = PatternNode::Kind;

namespace {

constexpr int kMostDepth = 100;
constexpr int kMostCounts = 5;  // of one thing, each around the last
constexpr uint32_t kNoLimit = UINT32_MAX;
constexpr uint32_t kMostCount = 1'000'000'000;

class Parser {
 public:
  Parser(std::string_view pattern, bool ecma, Budget* budget)
      : reader_(pattern, ecma, budget), budget_(*budget) {}

  PatternTree parse() {
    PatternFlags flags;
    tree_.root = choice(&flags, 0);
    if (!reader_.done()) reader_.wrong("a ')' without its '('", reader_.place());
    return std::move(tree_);
  }

 private:
  uint32_t add(PatternNode node) {
    budget_.step();
    tree_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(tree_.nodes.size() - 1);
  }

  uint32_t add_set(CharSet set) {
    tree_.sets.push_back(std::move(set));
    return add({.kind = Kind::kSet, .set = static_cast<uint32_t>(tree_.sets.size() - 1)});
  }

  /// Up to the end, or in front of ")". Flags that are set hold until there.
  uint32_t choice(PatternFlags* flags, int depth) {
    std::vector<uint32_t> branches;
    do {
      branches.push_back(sequence(flags, depth));
    } while (reader_.take("|"));
    if (branches.size() == 1) return branches.front();
    return add({.kind = Kind::kChoice, .children = std::move(branches)});
  }

  uint32_t sequence(PatternFlags* flags, int depth) {
    std::vector<uint32_t> parts;
    while (true) {
      reader_.skip_space(*flags);
      if (reader_.done() || reader_.looking_at("|") || reader_.looking_at(")")) break;
      std::optional<uint32_t> part = atom(flags, depth);
      if (!part) continue;
      int counts = 0;
      while (const std::optional<uint32_t> more = repeated(*part, *flags)) {
        if (++counts > kMostCounts) reader_.wrong("more than 5 counts", reader_.place());
        part = more;
      }
      parts.push_back(*part);
    }
    if (parts.size() == 1) return parts.front();
    return add({.kind = Kind::kSequence, .children = std::move(parts)});
  }

  std::optional<uint32_t> repeated(uint32_t part, const PatternFlags& flags) {
    reader_.skip_space(flags);
    uint32_t min = 0;
    uint32_t max = kNoLimit;
    const size_t place = reader_.place();
    if (reader_.take("+")) {
      min = 1;
    } else if (reader_.take("?")) {
      max = 1;
    } else if (reader_.take("{")) {
      const std::optional<uint32_t> least = reader_.take_number(10, 9);
      if (!least) reader_.wrong("a count without a number", place);
      min = max = *least;
      if (reader_.take(",")) max = reader_.take_number(10, 9).value_or(kNoLimit);
      if (!reader_.take("}")) reader_.wrong("a count without its end", place);
      if (max < min || min > kMostCount) reader_.wrong("a count that makes no sense", place);
    } else if (!reader_.take("*")) {
      return std::nullopt;
    }
    reader_.take("?");  // lazy, which is no other text
    return add({.kind = Kind::kRepeat, .min = min, .max = max, .children = {part}});
  }

  std::optional<uint32_t> atom(PatternFlags* flags, int depth) {
    const size_t place = reader_.place();
    if (reader_.take("(")) return group(flags, depth, place);
    if (reader_.take("[")) return add_set(reader_.take_brackets(*flags, 0));
    if (reader_.take(".")) return add_set(dot(*flags));
    if (reader_.looking_at("^") || reader_.looking_at("$")) {
      if (flags->lines) reader_.unsupported("^ or $ of lines", place);
      return add({.kind = reader_.next() == '^' ? Kind::kStart : Kind::kEnd});
    }
    if (reader_.take("\\")) return escaped(*flags);
    for (const char* sign : {"*", "+", "?", "{"}) {
      if (reader_.looking_at(sign)) reader_.wrong("a count of nothing", place);
    }
    const char32_t value = reader_.next();
    return literal(value, *flags);
  }

  uint32_t literal(char32_t value, const PatternFlags& flags) {
    CharSet set;
    set.add(value, value);
    return add_set(reader_.in_any_case(std::move(set), flags));
  }

  uint32_t escaped(const PatternFlags& flags) {
    if (reader_.take("A")) return add({.kind = Kind::kStart});
    if (reader_.take("z")) return add({.kind = Kind::kEnd});
    auto found = reader_.take_escape(false);
    if (const auto* const value = std::get_if<char32_t>(&found)) return literal(*value, flags);
    return add_set(reader_.in_any_case(std::get<CharSet>(std::move(found)), flags));
  }

  static CharSet dot(const PatternFlags& flags) {
    CharSet set;
    set.add(0, '\n' - 1);
    set.add(flags.dot_is_all ? '\n' : '\n' + 1, text::kLastChar);
    return set;
  }

  /// Behind "(". Nothing: it only sets flags.
  std::optional<uint32_t> group(PatternFlags* flags, int depth, size_t place) {
    if (depth > kMostDepth) reader_.wrong("groups nested more than 100 deep", place);
    PatternFlags own = *flags;
    for (const char* sign : {"?=", "?!", "?<=", "?<!"}) {
      if (reader_.looking_at(sign)) reader_.unsupported("look-around", place);
    }
    if (reader_.looking_at("?>")) reader_.unsupported("an atomic group", place);
    if (reader_.take("?P<") || reader_.take("?<")) {
      reader_.take_until('>');
    } else if (reader_.take("?")) {
      read_flags(&own, place);
      if (reader_.take(")")) {
        *flags = own;
        return std::nullopt;
      }
      if (!reader_.take(":")) reader_.wrong("a group of no known kind", place);
    }
    const uint32_t inside = choice(&own, depth + 1);
    if (!reader_.take(")")) reader_.wrong("a '(' without its ')'", place);
    return inside;
  }

  void read_flags(PatternFlags* flags, size_t place) {
    bool on = true;
    while (!reader_.done() && !reader_.looking_at(")") && !reader_.looking_at(":")) {
      switch (reader_.next()) {
        case '-':
          on = false;
          break;
        case 'i':
          flags->any_case = on;
          break;
        case 'm':
          flags->lines = on;
          break;
        case 's':
          flags->dot_is_all = on;
          break;
        case 'x':
          flags->spaced = on;
          break;
        case 'U':  // which counts are lazy
          break;
        case 'u':
          if (on) break;
          [[fallthrough]];
        default:
          reader_.unsupported("a flag of this kind", place);
      }
    }
  }

  PatternReader reader_;
  Budget& budget_;
  PatternTree tree_;
};

}  // namespace

PatternTree parse_pattern(std::string_view pattern, bool ecma, Budget* budget) {
  const size_t wrong = text::invalid_utf8_at(pattern);
  if (wrong != text::kValid) {
    throw_error(ErrorCode::kInvalidArgument, "it is not UTF-8 at byte ", wrong);
  }
  return Parser(pattern, ecma, budget).parse();
}

}  // namespace headrace::grammar
