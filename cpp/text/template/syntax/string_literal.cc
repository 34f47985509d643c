#include "text/template/syntax/lexer.h"
#include "text/template/values/chars.h"
#include "text/template/values/fault.h"

namespace headrace::text::jinja {
namespace {

class Unescape {
 public:
  Unescape(std::string_view literal, uint32_t line) : text_(literal), line_(line) {}

  std::string result() {
    while (at_ < text_.size()) {
      const char byte = text_[at_++];
      if (byte == '\\') {
        escape();
      } else {
        out_ += byte;
      }
    }
    return std::move(out_);
  }

 private:
  void escape();
  void hex(size_t digits);
  void octal();
  void unknown();

  std::string_view text_;
  uint32_t line_;
  size_t at_ = 0;
  std::string out_;
};

// REQUIRES: a character follows, which the lexer sees to.
void Unescape::escape() {
  static constexpr std::string_view kNames = "\n\\'\"abfnrtv";
  static constexpr std::string_view kValues = "\n\\'\"\a\b\f\n\r\t\v";
  const char byte = text_[at_];
  if (byte == '\n') {
    ++at_;  // a line that goes on
  } else if (const size_t i = kNames.find(byte); i != std::string_view::npos) {
    out_ += kValues[i];
    ++at_;
  } else if (byte == 'x' || byte == 'u' || byte == 'U') {
    ++at_;
    hex(byte == 'x' ? 2 : byte == 'u' ? 4 : 8);
  } else if (byte == 'N') {
    fail_unsupported(line_, {"the escape \\N{...} in a string"});
  } else if (byte >= '0' && byte <= '7') {
    octal();
  } else {
    unknown();
  }
}

void Unescape::hex(size_t digits) {
  uint32_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++at_) {
    const char byte = at_ < text_.size() ? text_[at_] : '\0';
    const char small = static_cast<char>(byte | 32);
    if (byte >= '0' && byte <= '9') {
      value = value << 4 | static_cast<uint32_t>(byte - '0');
    } else if (small >= 'a' && small <= 'f') {
      value = value << 4 | static_cast<uint32_t>(small - 'a' + 10);
    } else {
      fail_at(line_, {"truncated escape with too few hexadecimal digits in a string"});
    }
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
    fail_at(line_, {"an escape in a string that is no Unicode character"});
  }
  append_utf8(value, &out_);
}

void Unescape::octal() {
  uint32_t value = 0;
  for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
    value = value << 3 | static_cast<uint32_t>(text_[at_++] - '0');
  }
  append_utf8(value, &out_);
}

/// The backslash stays. Of another character than ASCII jinja2 makes its own escape first.
void Unescape::unknown() {
  static constexpr char kDigits[] = "0123456789abcdef";
  out_ += '\\';
  if (static_cast<uint8_t>(text_[at_]) < 0x80) {
    return;
  }
  const char32_t value = next_char(text_, &at_);
  const int digits = value < 0x100 ? 2 : value < 0x10000 ? 4 : 8;
  out_ += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int i = digits - 1; i >= 0; --i) {
    out_ += kDigits[value >> (4 * i) & 15];
  }
}

}  // namespace

std::string_view unescaped(std::string_view literal, uint32_t line, Arena& arena) {
  if (literal.find('\\') == std::string_view::npos) {
    return literal;
  }
  return arena.copy(Unescape(literal, line).result());
}

}  // namespace headrace::text::jinja
