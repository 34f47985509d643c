#include <algorithm>
#include <utility>

#include "text/regex/pattern/classes.h"
#include "text/regex/pattern/pattern_reader.h"
#include "text/regex/pattern/syntax.h"

namespace headrace::text {

namespace {

struct Options {
  bool any_case = false;  ///< i
  bool dot_all = false;   ///< m
  bool spaced = false;    ///< x
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : reader_(pattern) {}

  Syntax parse() {
    syntax_.root = choice(Options(), 0);
    if (!reader_.done()) {
      reader_.wrong("a closing parenthesis without an opening one", reader_.place());
    }
    return std::move(syntax_);
  }

 private:
  uint32_t add(Node node) {
    reader_.count_node();
    // What compiles it goes as deep.
    constexpr int kMaxHeight = 5 * PatternReader::kMaxDepth;
    int height = 0;
    for (const uint32_t child : node.children) {
      height = std::max(height, heights_[child] + 1);
    }
    if (height > kMaxHeight) {
      reader_.too_much("parts nested more than 500 deep");
    }
    heights_.push_back(height);
    syntax_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(syntax_.nodes.size() - 1);
  }
  uint32_t add(NodeKind kind, std::vector<uint32_t> children = {}) {
    Node node;
    node.kind = kind;
    node.children = std::move(children);
    return add(std::move(node));
  }
  uint32_t add_set(const CharSet& set) {
    constexpr size_t kMostRanges = 1u << 20;
    Node node;
    node.kind = NodeKind::kSet;
    const auto found = std::find(syntax_.sets.begin(), syntax_.sets.end(), set);
    node.set = static_cast<uint32_t>(found - syntax_.sets.begin());
    if (found == syntax_.sets.end()) {
      ranges_ += set.ranges().size();
      if (ranges_ > kMostRanges) {
        reader_.too_much("classes of more than a million ranges");
      }
      syntax_.sets.push_back(set);
    }
    return add(std::move(node));
  }
  uint32_t add_place(Place place) {
    Node node;
    node.kind = NodeKind::kAssert;
    node.place = place;
    return add(std::move(node));
  }
  uint32_t add_char(char32_t value, Options options) {
    if (options.any_case) {
      CharSet set;
      for (const char32_t same : same_but_case(value)) {
        set.add(same, same);
      }
      if (set.ranges() != std::vector<CodeRange>{{value, value}}) {
        return add_set(set);
      }
    }
    Node node;
    node.kind = NodeKind::kChar;
    node.value = value;
    return add(std::move(node));
  }

  /// Alternatives, up to a closing parenthesis or the end.
  uint32_t choice(Options options, int depth) {
    if (depth > PatternReader::kMaxDepth) {
      reader_.too_much("groups nested more than 100 deep");
    }
    std::vector<uint32_t> alternatives = {sequence(options, depth)};
    while (reader_.take("|")) {
      alternatives.push_back(sequence(options, depth));
    }
    return alternatives.size() == 1 ? alternatives[0]
                                    : add(NodeKind::kChoice, std::move(alternatives));
  }

  uint32_t sequence(Options options, int depth) {
    std::vector<uint32_t> items;
    last_char_ = 0;
    for (;;) {
      skip_spaced(options);
      if (reader_.done() || reader_.looking_at("|") || reader_.looking_at(")")) {
        break;
      }
      items.push_back(repeated(options, depth));
    }
    last_char_ = 0;
    return items.size() == 1 ? items[0] : add(NodeKind::kSequence, std::move(items));
  }

  void skip_spaced(Options options) {
    for (;;) {
      if (reader_.take("(?#")) {
        const size_t place = reader_.place();
        if (!reader_.take_until(')')) {
          reader_.wrong("a comment without its end", place);
        }
      } else if (options.spaced && reader_.take("#")) {
        while (!reader_.done() && reader_.next() != '\n') {
        }
      } else if (options.spaced && !reader_.done() && is_blank(reader_.peek())) {
        reader_.next();
      } else {
        return;
      }
    }
  }
  static bool is_blank(char32_t value) { return value == ' ' || (value >= '\t' && value <= '\r'); }

  /// An atom and what repeats it.
  uint32_t repeated(Options options, int depth) {
    const size_t place = reader_.place();
    uint32_t node = atom(options, depth);
    for (int repeats = 0;; ++repeats) {
      skip_spaced(options);
      Node repeat;
      if (!take_repeat(&repeat)) {
        return node;
      }
      if (is_place(node)) {
        reader_.wrong("a place can't be repeated", place);
      }
      if (repeats + depth > PatternReader::kMaxDepth) {
        reader_.too_much("repetitions nested more than 100 deep");
      }
      repeat.kind = NodeKind::kRepeat;
      repeat.children = {node};
      node = add(std::move(repeat));
      last_char_ = 0;
    }
  }

  bool take_repeat(Node* repeat) {
    bool counted = false;
    if (reader_.take("*")) {
      repeat->max = kNoLimit;
    } else if (reader_.take("+")) {
      repeat->min = 1;
      repeat->max = kNoLimit;
    } else if (reader_.take("?")) {
      repeat->max = 1;
    } else if (reader_.looking_at("{") && take_counts(repeat)) {
      counted = true;
    } else {
      return false;
    }
    // {n}? is (?:{n})?, and {n,m}+ is (?:{n,m})+.
    if (repeat->greed == Greed::kPossessive) {
      return true;
    }
    const bool fixed = counted && repeat->min == repeat->max;
    if (!fixed && reader_.take("?")) {
      repeat->greed = Greed::kLazy;
    } else if (!counted && reader_.take("+")) {
      repeat->greed = Greed::kPossessive;
    }
    return true;
  }

  /// {n}, {n,}, {,m}, {n,m}. False, and nothing is taken: the brace is an ordinary character.
  bool take_counts(Node* repeat) {
    const size_t start = reader_.place();
    reader_.take("{");
    const auto number = [&](uint32_t* count) {
      const size_t place = reader_.place();
      const auto value = reader_.take_number(10, 100, PatternReader::kMaxCount);
      if (!value && reader_.place() != place) {
        reader_.too_much("a count over 1000");
      }
      *count = value.value_or(*count);
      return value.has_value();
    };
    const bool has_min = number(&repeat->min);
    repeat->max = repeat->min;
    bool has_max = false;
    if (reader_.take(",")) {
      repeat->max = kNoLimit;
      has_max = number(&repeat->max);
    }
    if ((!has_min && !has_max) || !reader_.take("}")) {
      *repeat = Node();
      reader_.go_back(start);
      return false;
    }
    if (repeat->max < repeat->min) {
      std::swap(repeat->min, repeat->max);
      repeat->greed = Greed::kPossessive;  // as Ruby has it
    }
    return true;
  }

  uint32_t atom(Options options, int depth) {
    const size_t place = reader_.place();
    const char32_t value = reader_.next();
    const char32_t before = std::exchange(last_char_, 0);
    switch (value) {
      case '(':
        return group(options, depth, place);
      case '[':
        return add_set(take_brackets(&reader_, options.any_case));
      case '.':
        return add_set(any_char(options.dot_all));
      case '^':
        return add_place(Place::kLineStart);
      case '$':
        return add_place(Place::kLineEnd);
      case '*':
      case '+':
      case '?':
        reader_.wrong("nothing that could be repeated", place);
      case '{': {
        Node repeat;
        reader_.go_back(place);
        if (take_counts(&repeat)) {
          reader_.wrong("nothing that could be repeated", place);
        }
        reader_.next();
        return character(value, before, options, place);
      }
      case '\\':
        return escape(before, options, place);
      default:
        return character(value, before, options, place);
    }
  }

  uint32_t character(char32_t value, char32_t before, Options options, size_t place) {
    if (options.any_case &&
        (folds_to_several(value, 0) || (before != 0 && folds_to_several(before, value)))) {
      reader_.unsupported("what, in any case, is another number of characters, as ß is ss", place);
    }
    last_char_ = value;
    return add_char(value, options);
  }

  static CharSet any_char(bool newline) {
    CharSet set;
    if (newline) {
      set.add(0, kLastChar);
    } else {
      set.add('\n', '\n');
      set.negate();
    }
    return set;
  }

  uint32_t escape(char32_t before, Options options, size_t place) {
    if (const std::optional<char32_t> value = take_escaped_char(&reader_)) {
      return character(*value, before, options, place);
    }
    if (const std::optional<CharSet> set = take_escaped_set(&reader_, outer_word_set)) {
      return add_set(*set);
    }
    const char32_t letter = reader_.next();
    switch (letter) {
      case 'A':
        return add_place(Place::kTextStart);
      case 'z':
        return add_place(Place::kTextEnd);
      case 'Z':
        return add_place(Place::kLastLineEnd);
      case 'b':
        return add_place(Place::kWordEdge);
      case 'B':
        return add_place(Place::kNotWordEdge);
      case 'N':
        return add_set(any_char(false));
      case 'O':
        return add_set(any_char(true));
      case 'R':
        return any_newline();
      case 'p':
      case 'P':
        // Without a brace they are themselves.
        return character(letter, before, options, place);
      default:
        reader_.unsupported("a reference, or another escape that depends on earlier parts", place);
    }
  }

  /// \R: (?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}])
  uint32_t any_newline() {
    CharSet set;
    set.add('\n', '\r');
    set.add(0x85, 0x85);
    set.add(0x2028, 0x2029);
    const uint32_t pair =
        add(NodeKind::kSequence, {add_char('\r', Options()), add_char('\n', Options())});
    return add(NodeKind::kAtomic, {add(NodeKind::kChoice, {pair, add_set(set)})});
  }

  uint32_t group(Options options, int depth, size_t place) {
    if (!reader_.take("?")) {
      return capture(options, depth, place);
    }
    if (reader_.take(":")) {
      return plain_group(options, depth, place);
    }
    if (reader_.take(">")) {
      return close(add(NodeKind::kAtomic, {choice(options, depth + 1)}), place);
    }
    if (reader_.take("=") || reader_.take("<=")) {
      return look(false, options, depth, place);
    }
    if (reader_.take("!") || reader_.take("<!")) {
      return look(true, options, depth, place);
    }
    if (reader_.take("<") || reader_.take("'")) {
      return named(options, depth, place);
    }
    return option_group(options, depth, place);
  }

  uint32_t close(uint32_t node, size_t place) {
    if (!reader_.take(")")) {
      reader_.wrong("a parenthesis without its end", place);
    }
    last_char_ = 0;
    return node;
  }

  uint32_t plain_group(Options options, int depth, size_t place) {
    const uint32_t node = close(choice(options, depth + 1), place);
    // A group of a place may be repeated, other than a place.
    return is_place(node) ? add(NodeKind::kSequence, {node}) : node;
  }
  uint32_t capture(Options options, int depth, size_t place) {
    const uint32_t node = plain_group(options, depth, place);
    ++syntax_.nodes[node].captures;
    return node;
  }
  bool is_place(uint32_t node) const {
    const NodeKind kind = syntax_.nodes[node].kind;
    return kind == NodeKind::kAssert || kind == NodeKind::kAhead || kind == NodeKind::kBehind;
  }

  uint32_t look(bool negative, Options options, int depth, size_t place) {
    // The sign that was taken last tells ahead from behind.
    reader_.go_back(place + 2);
    const bool behind = reader_.take("<");
    reader_.next();
    Node node;
    node.kind = behind ? NodeKind::kBehind : NodeKind::kAhead;
    node.negative = negative;
    node.children = {choice(options, depth + 1)};
    return close(add(std::move(node)), place);
  }

  uint32_t named(Options options, int depth, size_t place) {
    reader_.go_back(place + 2);
    const char end = reader_.next() == '<' ? '>' : '\'';
    const std::optional<std::string_view> name = reader_.take_until(end);
    if (!name || name->empty()) {
      reader_.wrong("a group's name without its end", place);
    }
    return capture(options, depth, place);
  }

  /// (?imx-imx) and (?imx-imx:..)
  uint32_t option_group(Options options, int depth, size_t place) {
    bool on = true;
    for (;;) {
      if (reader_.take("-")) {
        on = false;
      } else if (reader_.take("i")) {
        options.any_case = on;
      } else if (reader_.take("m")) {
        options.dot_all = on;
      } else if (reader_.take("x")) {
        options.spaced = on;
      } else {
        break;
      }
    }
    if (reader_.take(":")) {
      return plain_group(options, depth, place);
    }
    if (!reader_.take(")")) {
      reader_.unsupported("this kind of group", place);
    }
    // They hold to the end of the group around, alternatives included.
    return choice(options, depth + 1);
  }

  PatternReader reader_;
  Syntax syntax_;
  std::vector<int> heights_;  ///< of each node, over its leaves
  size_t ranges_ = 0;
  char32_t last_char_ = 0;  ///< the literal character just before, in any case; 0: none
};

}  // namespace

Syntax parse_pattern(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace headrace::text
