#include <algorithm>

#include "text/regex/pattern/classes.h"
#include "text/regex/pattern/pattern_reader.h"

namespace headrace::text {

namespace {

/// The inside of one pair of brackets.
class Brackets {
 public:
  Brackets(PatternReader* reader, int depth)
      : reader_(*reader), depth_(depth), start_(reader->place()) {
    if (depth > PatternReader::kMaxDepth) {
      reader_.too_much("brackets nested more than 100 deep");
    }
  }

  /// All but the negation, of which `negative` tells.
  CharSet read() {
    negative_ = reader_.take("^");
    if (reader_.looking_at("]")) {
      const size_t place = reader_.place();
      reader_.next();
      add_item(']', place);  // the first one is itself
    }
    while (!reader_.take("]")) {
      if (reader_.done()) {
        reader_.wrong("brackets without their end", start_);
      }
      read_item();
    }
    end_operand();
    return std::move(*all_);
  }
  bool negative() const { return negative_; }

 private:
  void read_item() {
    const size_t place = reader_.place();
    if (reader_.take("[:")) {
      if (read_posix()) {
        return;
      }
      reader_.go_back(place);
    }
    if (reader_.take("[")) {
      reader_.count_node();
      Brackets inner(&reader_, depth_ + 1);
      CharSet set = inner.read();
      if (inner.negative()) {
        set.negate();
      }
      add_set(set);
    } else if (reader_.take("&&")) {
      end_operand();
    } else if (reader_.take("\\")) {
      read_escape(place);
    } else {
      add_item(reader_.next(), place);
    }
  }

  bool read_posix() {
    const bool negative = reader_.take("^");
    const size_t place = reader_.place();
    const std::optional<std::string_view> name = reader_.take_until(':');
    constexpr size_t kLongest = 20;
    if (!name || name->size() > kLongest || !reader_.take("]")) {
      return false;
    }
    reader_.count_node();
    std::optional<CharSet> set = posix_set(*name);
    if (!set) {
      reader_.unsupported("a class of that name", place);
    }
    if (negative) {
      set->negate();
    }
    add_set(*set);
    return true;
  }

  void read_escape(size_t place) {
    if (reader_.take("b")) {
      add_item('\b', place);
      return;
    }
    if (const std::optional<char32_t> value = take_escaped_char(&reader_)) {
      add_item(*value, place);
      return;
    }
    const std::optional<CharSet> set = take_escaped_set(&reader_, word_set);
    if (!set) {
      reader_.unsupported("this escape within brackets", place);
    }
    reader_.count_node();
    add_set(*set);
  }

  void add_set(const CharSet& set) {
    if (reader_.looking_at("-") && !reader_.looking_at("-]")) {
      reader_.wrong("a range that begins with a class", reader_.place());
    }
    current_.add(set);
  }

  /// A character, or the range that begins with it.
  void add_item(char32_t first, size_t place) {
    char32_t last = first;
    if (reader_.looking_at("-") && !reader_.looking_at("-]") && !reader_.looking_at("-&&")) {
      reader_.next();
      if (reader_.done()) {
        reader_.wrong("brackets without their end", start_);
      }
      if (first == '-') {
        reader_.unsupported("a range that begins with a hyphen", place);
      }
      last = range_end();
      if (last < first) {
        reader_.wrong("a range whose end comes before its start", place);
      }
      if (reader_.looking_at("-") && !reader_.looking_at("-]")) {
        reader_.unsupported("a hyphen behind a range", reader_.place());
      }
    }
    current_.add(first, last);
  }

  char32_t range_end() {
    const size_t place = reader_.place();
    if (reader_.looking_at("[")) {
      reader_.unsupported("a hyphen before brackets", place);
    }
    if (!reader_.take("\\")) {
      return reader_.next();
    }
    if (reader_.take("b")) {
      return '\b';
    }
    const std::optional<char32_t> value = take_escaped_char(&reader_);
    if (!value) {
      reader_.wrong("a range that ends with a class", place);
    }
    return *value;
  }

  /// What `&&` cuts.
  void end_operand() {
    if (all_) {
      all_->intersect(current_);
    } else {
      all_ = std::move(current_);
    }
    current_ = CharSet();
  }

  PatternReader& reader_;
  int depth_;
  size_t start_;
  bool negative_ = false;
  CharSet current_;
  std::optional<CharSet> all_;
};

}  // namespace

CharSet take_brackets(PatternReader* reader, bool any_case) {
  const size_t place = reader->place();
  Brackets brackets(reader, 0);
  CharSet set = brackets.read();
  if (any_case) {
    if (!brackets.negative() && any_folds_to_several(set)) {
      reader->unsupported("brackets that, in any case, match several characters at once", place);
    }
    close_over_case(&set);
  }
  if (brackets.negative()) {
    set.negate();
  }
  return set;
}

}  // namespace headrace::text
