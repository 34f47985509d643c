#include "text/json/scanner.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text::json {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighs = 0x8080808080808080;

constexpr uint64_t bytes_below(uint64_t word, uint8_t limit) {
  return (word - kOnes * limit) & ~word & kHighs;
}
constexpr uint64_t bytes_equal(uint64_t word, uint8_t value) {
  return bytes_below(word ^ (kOnes * value), 1);
}

constexpr bool is_plain(char c) {
  return static_cast<uint8_t>(c) >= 0x20 && static_cast<uint8_t>(c) < 0x80 && c != '"' && c != '\\';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void Scanner::fail(const char* what) const {
  throw_error(ErrorCode::kCorruptFile, "not valid JSON: ", what, " at byte ", offset());
}

void Scanner::skip_space() noexcept {
  constexpr uint64_t kSpaces = kOnes * ' ';
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
    if (*at_++ != '\n') continue;
    // Files with one value a line have runs of spaces before each.
    uint64_t word = 0;
    for (; end_ - at_ >= 8; at_ += 8) {
      std::memcpy(&word, at_, 8);
      if (word != kSpaces) break;
    }
  }
}

void Scanner::count_value() {
  if (values_left_ == 0) {
    throw_error(ErrorCode::kLimitExceeded, "JSON has too many values: more than allowed at byte ",
                offset());
  }
  --values_left_;
}

Scanner::Next Scanner::peek() {
  skip_space();
  if (at_ == end_) fail("the text ends where a value belongs");
  switch (*at_) {
    case 'n':
      return Next::kNull;
    case 't':
    case 'f':
      return Next::kBool;
    case '"':
      return Next::kString;
    case '[':
      return Next::kList;
    case '{':
      return Next::kObject;
    default:
      if (*at_ != '-' && !is_digit(*at_)) fail("expected a value");
      return Next::kNumber;
  }
}

void Scanner::enter_object() {
  if (peek() != Next::kObject) fail("expected an object");
  count_value();
  if (depth_left_-- == 0) throw_error(ErrorCode::kLimitExceeded, "JSON is nested too deeply");
  ++at_;
  first_ = true;
}

void Scanner::enter_list() {
  if (peek() != Next::kList) fail("expected a list");
  count_value();
  if (depth_left_-- == 0) throw_error(ErrorCode::kLimitExceeded, "JSON is nested too deeply");
  ++at_;
  first_ = true;
}

void Scanner::close() noexcept {
  ++at_;
  ++depth_left_;
  first_ = false;
}

/// In front of a member or an item; false if there is none, and its container is closed.
bool Scanner::next_member(char closing) {
  skip_space();
  if (at_ == end_) fail("the text ends within a list or object");
  const bool first = first_;
  first_ = false;
  if (*at_ == closing) {
    close();
    return false;
  }
  if (!first) {
    if (*at_ != ',') fail("expected a comma");
    ++at_;
    skip_space();
  }
  return true;
}

bool Scanner::next_key(std::string* buffer, std::string_view* key) {
  if (!next_member('}')) return false;
  if (at_ == end_ || *at_ != '"') fail("expected a key");
  ++values_left_;  // a key is no value
  *key = read_string(buffer);
  skip_space();
  if (at_ == end_ || *at_ != ':') fail("expected a colon");
  ++at_;
  return true;
}

bool Scanner::next_item() { return next_member(']'); }

/// Behind the ASCII characters from `at` on that stand for themselves.
const char* Scanner::plain_end(const char* at) const noexcept {
  while (end_ - at >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    // Behind the first special byte the borrow may mark others, so only the lowest mark counts.
    const uint64_t special = bytes_below(word, 0x20) | bytes_equal(word, '"') |
                             bytes_equal(word, '\\') | (word & kHighs);
    if (special != 0) {
      static_assert(std::endian::native == std::endian::little);
      return at + std::countr_zero(special) / 8;
    }
    at += 8;
  }
  while (at < end_ && is_plain(*at)) ++at;
  return at;
}

/// Behind the characters beyond ASCII from `at` on.
const char* Scanner::character_end(const char* at) const {
  const auto byte = [&](const char* p) { return p < end_ ? static_cast<uint8_t>(*p) : 0u; };
  const auto follows = [&](const char* p) { return (byte(p) & 0xC0) == 0x80; };
  const uint32_t first = byte(at);
  const uint32_t second = byte(at + 1);
  if (first >= 0xC2 && first < 0xE0 && follows(at + 1)) return at + 2;
  if (first >= 0xE0 && first < 0xF0 && follows(at + 1) && follows(at + 2) &&
      !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second >= 0xA0)) {
    return at + 3;
  }
  if (first >= 0xF0 && first < 0xF5 && follows(at + 1) && follows(at + 2) && follows(at + 3) &&
      !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second >= 0x90)) {
    return at + 4;
  }
  throw_error(ErrorCode::kCorruptFile, "not valid JSON: it is not UTF-8 at byte ", at - begin_);
}

std::string_view Scanner::read_string(std::string* buffer) {
  if (peek() != Next::kString) fail("expected a string");
  count_value();
  ++at_;
  const char* start = at_;
  bool escaped = false;
  for (;;) {
    at_ = plain_end(at_);
    if (at_ == end_) fail("the text ends within a string");
    if (static_cast<uint8_t>(*at_) >= 0x80) {
      at_ = character_end(at_);
    } else if (*at_ == '"') {
      const std::string_view rest(start, static_cast<size_t>(at_ - start));
      ++at_;
      if (!escaped) return rest;
      buffer->append(rest);
      return *buffer;
    } else if (*at_ == '\\') {
      if (!escaped) buffer->clear();
      escaped = true;
      buffer->append(start, at_);
      ++at_;
      read_escape(buffer);
      start = at_;
    } else {
      fail("a control character within a string");
    }
  }
}

uint32_t Scanner::read_hex() {
  if (end_ - at_ < 4) fail("the text ends within a string");
  uint32_t value = 0;
  const auto [stop, error] = std::from_chars(at_, at_ + 4, value, 16);
  if (error != std::errc() || stop != at_ + 4) fail("expected four hexadecimal digits");
  at_ += 4;
  return value;
}

void Scanner::read_escape(std::string* out) {
  if (at_ == end_) fail("the text ends within a string");
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  const size_t simple = kNames.find(*at_);
  if (simple != std::string_view::npos) {
    ++at_;
    out->push_back(kValues[simple]);
    return;
  }
  if (*at_ != 'u') fail("an unknown escape");
  ++at_;
  uint32_t value = read_hex();
  if (value >= 0xDC00 && value < 0xE000) fail("a lone surrogate");
  if (value >= 0xD800 && value < 0xDC00) {
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') fail("a lone surrogate");
    at_ += 2;
    const uint32_t low = read_hex();
    if (low < 0xDC00 || low >= 0xE000) fail("a lone surrogate");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(value, out);
}

void Scanner::read_word(std::string_view word) {
  count_value();
  const auto left = static_cast<size_t>(end_ - at_);
  if (std::string_view(at_, std::min(left, word.size())) != word) fail("expected a value");
  at_ += word.size();
}

bool Scanner::read_bool() {
  if (peek() != Next::kBool) fail("expected true or false");
  const bool value = *at_ == 't';
  read_word(value ? "true" : "false");
  return value;
}

void Scanner::read_null() {
  if (peek() != Next::kNull) fail("expected null");
  read_word("null");
}

Scanner::Number Scanner::read_number() {
  if (peek() != Next::kNumber) fail("expected a number");
  count_value();
  const char* start = at_;
  const auto digits = [&] {
    if (at_ == end_ || !is_digit(*at_)) fail("expected a digit");
    while (at_ < end_ && is_digit(*at_)) ++at_;
  };
  if (*at_ == '-') ++at_;
  if (at_ < end_ && *at_ == '0') {
    ++at_;
  } else {
    digits();
  }
  Number number;
  number.integral = true;
  if (at_ < end_ && *at_ == '.') {
    number.integral = false;
    ++at_;
    digits();
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    number.integral = false;
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    digits();
  }
  if (number.integral && std::from_chars(start, at_, number.integer).ec == std::errc()) {
    number.real = static_cast<double>(number.integer);
    return number;
  }
  number.integral = false;
  if (std::from_chars(start, at_, number.real).ec != std::errc()) {
    fail("a number too large or too small");
  }
  return number;
}

void Scanner::skip_value() {
  const int outside = depth_left_;
  // By hand instead of by recursion: how deep it may be is the caller's limit.
  std::string closers;
  do {
    if (!closers.empty()) {
      std::string_view key;
      const bool more = closers.back() == ']' ? next_item() : next_key(&unused_, &key);
      if (!more) {
        closers.pop_back();
        continue;
      }
    }
    switch (peek()) {
      case Next::kNull:
        read_null();
        break;
      case Next::kBool:
        read_bool();
        break;
      case Next::kNumber:
        read_number();
        break;
      case Next::kString:
        read_string(&unused_);
        break;
      case Next::kList:
        enter_list();
        closers.push_back(']');
        break;
      case Next::kObject:
        enter_object();
        closers.push_back('}');
        break;
    }
  } while (depth_left_ != outside || !closers.empty());
}

void Scanner::finish() {
  skip_space();
  if (at_ != end_) fail("something follows the value");
}

}  // namespace headrace::text::json
