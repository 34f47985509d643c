#include "text/json/scanner.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text::json {
namespace {

constexpr ptrdiff_t kBlock = sizeof(__m128i);

__m128i load_block(const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

unsigned bytes_equal(__m128i block, char value) {
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(value))));
}
unsigned control_bytes(__m128i block) {
  const __m128i lowest = _mm_min_epu8(block, _mm_set1_epi8(0x1F));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(lowest, block)));
}
unsigned high_bytes(__m128i block) { return static_cast<unsigned>(_mm_movemask_epi8(block)); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void Scanner::fail(const char* what) const {
  throw_error(ErrorCode::kCorruptFile, "not valid JSON: ", what, " at byte ", offset());
}

void Scanner::fail_count() const {
  throw_error(ErrorCode::kLimitExceeded, "JSON has too many values: more than allowed at byte ",
              offset());
}

/// Of a value that isn't what was expected.
void Scanner::fail_kind(const char* what) {
  peek();
  fail(what);
}

void Scanner::skip_spaces() noexcept {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
    if (*at_++ != '\n') continue;
    // Files with one value a line have runs of spaces before each.
    while (end_ - at_ >= kBlock) {
      const unsigned other = ~bytes_equal(load_block(at_), ' ') & 0xFFFF;
      at_ += other == 0 ? kBlock : std::countr_zero(other);
      if (other != 0) break;
    }
  }
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
  *key = read_quoted(buffer);
  skip_space();
  if (at_ == end_ || *at_ != ':') fail("expected a colon");
  ++at_;
  return true;
}

bool Scanner::next_item() { return next_member(']'); }

/// Moves to what ends a string, an escape or a character that may not be in one. Returns whether it
/// has passed characters beyond ASCII.
bool Scanner::skip_plain() noexcept {
  unsigned high = 0;
  while (end_ - at_ >= kBlock) {
    const __m128i block = load_block(at_);
    const unsigned special =
        bytes_equal(block, '"') | bytes_equal(block, '\\') | control_bytes(block);
    if (special != 0) {
      const int place = std::countr_zero(special);
      at_ += place;
      return (high | (high_bytes(block) & ((1u << place) - 1))) != 0;
    }
    high |= high_bytes(block);
    at_ += kBlock;
  }
  for (; at_ < end_ && *at_ != '"' && *at_ != '\\'; ++at_) {
    const auto byte = static_cast<uint8_t>(*at_);
    if (byte < 0x20) break;
    high |= byte & 0x80u;
  }
  return high != 0;
}

void Scanner::check_utf8(const char* begin) const {
  const size_t wrong = invalid_utf8_at({begin, static_cast<size_t>(at_ - begin)});
  if (wrong == kValid) return;
  throw_error(ErrorCode::kCorruptFile, "not valid JSON: it is not UTF-8 at byte ",
              static_cast<size_t>(begin - begin_) + wrong);
}

/// REQUIRES: a quotation mark comes next.
std::string_view Scanner::read_quoted(std::string* buffer) {
  ++at_;
  bool escaped = false;
  for (;;) {
    const char* start = at_;
    if (skip_plain()) check_utf8(start);
    if (at_ == end_) fail("the text ends within a string");
    const std::string_view part(start, static_cast<size_t>(at_ - start));
    if (*at_ == '"') {
      ++at_;
      if (!escaped) return part;
      buffer->append(part);
      return *buffer;
    }
    if (*at_ != '\\') fail("a control character within a string");
    if (!escaped) buffer->clear();
    escaped = true;
    buffer->append(part);
    ++at_;
    read_escape(buffer);
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

size_t Scanner::count_ahead(char byte) const noexcept {
  const __m128i wanted = _mm_set1_epi8(byte);
  const char* at = at_;
  __m128i sums = _mm_setzero_si128();
  while (end_ - at >= kBlock) {
    // A match is -1: as many blocks as a byte can count.
    __m128i counts = _mm_setzero_si128();
    const char* end = at + std::min<ptrdiff_t>((end_ - at) / kBlock, 255) * kBlock;
    for (; at < end; at += kBlock) {
      counts = _mm_sub_epi8(counts, _mm_cmpeq_epi8(load_block(at), wanted));
    }
    sums = _mm_add_epi64(sums, _mm_sad_epu8(counts, _mm_setzero_si128()));
  }
  const auto tail = std::count(at, end_, byte);
  return static_cast<size_t>(_mm_cvtsi128_si64(sums)) +
         static_cast<size_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums))) +
         static_cast<size_t>(tail);
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
