#pragma once

// JSON, read value by value as the reader asks for it: nothing is kept of what it has passed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace headrace::text::json {

/// Reads one JSON text exactly as RFC 8259 has it: UTF-8, no comments, no lone surrogates. Each
/// method throws Error(kCorruptFile) that says what is wrong at which byte, and
/// Error(kLimitExceeded). The text must outlive it.
class Scanner {
 public:
  Scanner(std::string_view text, int max_depth, size_t max_values)
      : begin_(text.data()),
        at_(text.data()),
        end_(text.data() + text.size()),
        depth_left_(max_depth),
        values_left_(max_values) {}

  enum class Next : uint8_t { kNull, kBool, kNumber, kString, kList, kObject };
  /// What kind of value comes next.
  Next peek();

  void enter_object();
  /// Moves to the next member of the innermost object, in front of its value; false behind the
  /// last, and the object is left. The key holds until `buffer` changes.
  bool next_key(std::string* buffer, std::string_view* key);
  void enter_list();
  /// Moves in front of the next item of the innermost list; false behind the last, and it is left.
  bool next_item();

  /// Of the text itself if it has no escapes, else of `buffer`.
  std::string_view read_string(std::string* buffer) {
    skip_space();
    if (at_ == end_ || *at_ != '"') fail_kind("expected a string");
    count_value();
    return read_quoted(buffer);
  }
  bool read_bool();
  void read_null();
  struct Number {
    bool integral = false;  ///< `integer` is exact
    int64_t integer = 0;
    double real = 0;
  };
  Number read_number();
  /// Reads and drops a value. What is in it is checked, too.
  void skip_value();
  /// Nothing but space may follow.
  void finish();

  /// Where the next value begins, or what stands there.
  size_t offset() const noexcept { return static_cast<size_t>(at_ - begin_); }
  /// How often a byte stands in what has not been read yet.
  size_t count_ahead(char byte) const noexcept;
  /// Another place of the same text, which `offset` gave.
  void go_to(size_t offset) noexcept { at_ = begin_ + offset; }

  /// From here on so many values may come. Returns how many were allowed.
  size_t allow_values(size_t most) noexcept { return std::exchange(values_left_, most); }

  /// "not valid JSON: `what` at byte N".
  [[noreturn]] void fail(const char* what) const;

 private:
  void skip_space() noexcept {
    if (at_ < end_ && *at_ > ' ') return;
    skip_spaces();
  }
  void skip_spaces() noexcept;
  void count_value() {
    if (values_left_ == 0) fail_count();
    --values_left_;
  }
  [[noreturn]] void fail_count() const;
  [[noreturn]] void fail_kind(const char* what);
  void close() noexcept;
  bool next_member(char closing);
  void read_word(std::string_view word);
  std::string_view read_quoted(std::string* buffer);
  bool skip_plain() noexcept;
  void check_utf8(const char* begin) const;
  void read_escape(std::string* out);
  uint32_t read_hex();

  const char* begin_;
  const char* at_;
  const char* end_;
  int depth_left_;
  size_t values_left_;
  bool first_ = false;  ///< nothing was read yet of the innermost list or object
  std::string unused_;
};

}  // namespace headrace::text::json
