#include "text/template/syntax/lexer.h"

#include <charconv>
#include <string>

#include "text/template/values/chars.h"
#include "text/template/values/fault.h"
#include "text/unicode/properties.h"

namespace headrace::text::jinja {
namespace {

/// \r\n and \r become \n, and one \n at the end goes.
std::string_view normalized(std::string_view source, Arena& arena) {
  char* const text = static_cast<char*>(arena.allocate(source.size()));
  size_t size = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text[size++] = source[i];
    } else {
      text[size++] = '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n';
    }
  }
  if (size > 0 && text[size - 1] == '\n') {
    --size;
  }
  return {text, size};
}

bool is_digit(char byte) noexcept { return byte >= '0' && byte <= '9'; }

bool is_word(char32_t character) noexcept {
  if (character < 0x80) {
    const char byte = static_cast<char>(character);
    return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '_';
  }
  return has_flag(character, kLetter | kNumber | kMark);
}

struct Operator {
  std::string_view text;
  Token kind;
};
// Longer ones first.
constexpr Operator kOperators[] = {
    {"//", Token::kFloorDiv},   {"**", Token::kPow},         {"==", Token::kEq},
    {"!=", Token::kNe},         {">=", Token::kGe},          {"<=", Token::kLe},
    {"+", Token::kAdd},         {"-", Token::kSub},          {"/", Token::kDiv},
    {"*", Token::kMul},         {"%", Token::kMod},          {"~", Token::kTilde},
    {"[", Token::kLeftBracket}, {"]", Token::kRightBracket}, {"(", Token::kLeftParen},
    {")", Token::kRightParen},  {"{", Token::kLeftBrace},    {"}", Token::kRightBrace},
    {">", Token::kGt},          {"<", Token::kLt},           {"=", Token::kAssign},
    {".", Token::kDot},         {":", Token::kColon},        {"|", Token::kPipe},
    {",", Token::kComma},       {";", Token::kSemicolon},
};

class Lexer {
 public:
  Lexer(std::string_view source, Arena& arena) : arena_(arena), text_(normalized(source, arena)) {}

  std::vector<LexedToken> all() {
    while (at_ < text_.size()) {
      data();
    }
    add(Token::kEnd, {});
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view what, size_t offset = 0) const noexcept {
    return text_.substr(std::min(at_ + offset, text_.size()), what.size()) == what;
  }
  void add(Token kind, std::string_view text) {
    LexedToken token;
    token.kind = kind;
    token.line = line_;
    token.text = text;
    tokens_.push_back(token);
  }
  /// Moves on, over what tokens don't hold.
  void pass(size_t bytes) noexcept {
    for (size_t i = 0; i < bytes; ++i) {
      line_ += text_[at_ + i] == '\n';
    }
    at_ += bytes;
  }
  void pass_space() noexcept {
    pass(text_.size() - at_ - strip_space_left(text_.substr(at_)).size());
  }

  void data();
  void add_data(std::string_view text, char sign, bool may_strip);
  void comment(uint32_t line);
  bool raw();
  void raw_body(uint32_t line);
  void tag(Token end);
  bool tag_end(Token end);
  void operand_or_operator();
  bool number();
  size_t digits(size_t from) const noexcept;
  size_t float_end() const noexcept;
  size_t integer_end() const noexcept;
  size_t based_end(char base, const char* allowed) const noexcept;
  void add_integer(size_t end);
  bool name();
  bool string();
  void operator_();
  void balance(Token kind, char byte);

  Arena& arena_;
  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starts_ = true;  ///< what was read last ended in a newline
  std::string open_;         ///< the brackets that close next, innermost last
  std::vector<LexedToken> tokens_;
};

/// Text outside of tags, and the tag behind it.
void Lexer::data() {
  size_t begin = at_;
  while (true) {
    begin = text_.find('{', begin);
    if (begin == std::string_view::npos || begin + 1 >= text_.size()) {
      begin = text_.size();
      break;
    }
    const char kind = text_[begin + 1];
    if (kind == '{' || kind == '%' || kind == '#') {
      break;
    }
    ++begin;
  }
  const std::string_view before = text_.substr(at_, begin - at_);
  if (begin == text_.size()) {
    add(Token::kData, before);
    pass(before.size());
    return;
  }
  const char kind = text_[begin + 1];
  const char sign = begin + 2 < text_.size() ? text_[begin + 2] : '\0';
  add_data(before, sign, kind != '{');
  pass(before.size());
  const uint32_t line = line_;
  if (kind == '%' && raw()) {
    raw_body(line);
    return;
  }
  const size_t size = 2 + (sign == '-' || sign == '+');
  line_starts_ = false;
  if (kind == '#') {
    pass(size);
    comment(line);
  } else {
    add(kind == '{' ? Token::kVariableBegin : Token::kBlockBegin, text_.substr(at_, 2));
    pass(size);
    tag(kind == '{' ? Token::kVariableEnd : Token::kBlockEnd);
  }
}

/// `text` in front of a tag that begins with `sign`.
void Lexer::add_data(std::string_view text, char sign, bool may_strip) {
  if (sign == '-') {
    text = strip_space_right(text);
  } else if (sign != '+' && may_strip) {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    // What stands between the start of the line and the tag goes if it is space.
    if ((start > 0 || line_starts_) && start < text.size() &&
        strip_space_left(text.substr(start)).empty()) {
      text = text.substr(0, start);
    }
  }
  if (!text.empty()) {
    add(Token::kData, text);
  }
}

void Lexer::comment(uint32_t line) {
  const size_t end = text_.find("#}", at_);
  if (end == std::string_view::npos) {
    fail_at(line, {"Missing end of comment tag"});
  }
  const char sign = end > at_ ? text_[end - 1] : '\0';
  pass(end + 2 - at_);
  if (sign == '-') {
    pass_space();
  } else if (sign != '+' && at("\n")) {
    pass(1);
  }
  line_starts_ = at_ > 0 && text_[at_ - 1] == '\n';
}

/// Reads {% raw %} if it is what comes.
bool Lexer::raw() {
  size_t i = at_ + 2;
  const auto skip_space = [&] { i = text_.size() - strip_space_left(text_.substr(i)).size(); };
  i += i < text_.size() && (text_[i] == '-' || text_[i] == '+');
  skip_space();
  if (text_.substr(i, 3) != "raw") {
    return false;
  }
  i += 3;
  skip_space();
  if (text_.substr(i, 3) == "-%}") {
    i += 3;
    skip_space();
  } else if (text_.substr(i, 2) == "%}") {
    i += 2;
  } else {
    return false;
  }
  pass(i - at_);
  line_starts_ = text_[at_ - 1] == '\n';
  return true;
}

void Lexer::raw_body(uint32_t line) {
  for (size_t begin = text_.find("{%", at_); begin != std::string_view::npos;
       begin = text_.find("{%", begin + 1)) {
    size_t i = begin + 2;
    const auto skip_space = [&] { i = text_.size() - strip_space_left(text_.substr(i)).size(); };
    const char sign = i < text_.size() ? text_[i] : '\0';
    i += sign == '-' || sign == '+';
    skip_space();
    if (text_.substr(i, 6) != "endraw") {
      continue;
    }
    i += 6;
    skip_space();
    if (text_.substr(i, 3) == "-%}") {
      i += 3;
      skip_space();
    } else if (text_.substr(i, 3) == "+%}") {
      i += 3;
    } else if (text_.substr(i, 2) == "%}") {
      i += 2;
      i += i < text_.size() && text_[i] == '\n';
    } else {
      continue;
    }
    add_data(text_.substr(at_, begin - at_), sign, true);
    pass(i - at_);
    line_starts_ = text_[at_ - 1] == '\n';
    return;
  }
  fail_at(line, {"Missing end of raw directive"});
}

void Lexer::tag(Token end) {
  open_.clear();
  while (at_ < text_.size()) {
    if (open_.empty() && tag_end(end)) {
      return;
    }
    const size_t before = at_;
    pass_space();
    if (at_ == before) {
      operand_or_operator();
    }
  }
}

bool Lexer::tag_end(Token end) {
  const std::string_view mark = end == Token::kVariableEnd ? "}}" : "%}";
  const bool block = end == Token::kBlockEnd;
  const size_t sign = at("-") || (block && at("+"));
  if (!at(mark, sign)) {
    return false;
  }
  const bool minus = at("-");
  add(end, mark);
  pass(sign + 2);
  if (minus) {
    pass_space();
  } else if (block && sign == 0 && at("\n")) {
    pass(1);
  }
  line_starts_ = text_[at_ - 1] == '\n';
  return true;
}

void Lexer::operand_or_operator() {
  if (!number() && !name() && !string()) {
    operator_();
  }
}

/// The end of digits with single underscores between them; `from` if there are none.
size_t Lexer::digits(size_t from) const noexcept {
  size_t end = from;
  while (end < text_.size() && is_digit(text_[end])) {
    ++end;
    if (end + 1 < text_.size() && text_[end] == '_' && is_digit(text_[end + 1])) {
      ++end;
    }
  }
  return end;
}

/// The end of a float that begins here; at_ if none does.
size_t Lexer::float_end() const noexcept {
  if (at_ > 0 && text_[at_ - 1] == '.') {
    return at_;
  }
  const size_t whole = digits(at_);
  if (whole == at_) {
    return at_;
  }
  size_t end = whole;
  if (end < text_.size() && text_[end] == '.' && digits(end + 1) > end + 1) {
    end = digits(end + 1);
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    size_t exponent = end + 1;
    exponent += exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-');
    if (digits(exponent) > exponent) {
      return digits(exponent);
    }
  }
  return end == whole ? at_ : end;
}

/// The end of digits of another base: 0x_1f.
size_t Lexer::based_end(char base, const char* allowed) const noexcept {
  const std::string_view set(allowed);
  if (at_ + 1 >= text_.size() || text_[at_] != '0' || (text_[at_ + 1] | 32) != base) {
    return at_;
  }
  size_t end = at_ + 2;
  while (end < text_.size()) {
    const size_t digit = end + (text_[end] == '_');
    if (digit >= text_.size() || set.find(text_[digit]) == std::string_view::npos) {
      break;
    }
    end = digit + 1;
  }
  return end == at_ + 2 ? at_ : end;
}

size_t Lexer::integer_end() const noexcept {
  for (const auto& [base, allowed] :
       {std::pair{'b', "01"}, {'o', "01234567"}, {'x', "0123456789abcdefABCDEF"}}) {
    const size_t end = based_end(base, allowed);
    if (end > at_) {
      return end;
    }
  }
  if (text_[at_] != '0') {
    return digits(at_);
  }
  size_t end = at_ + 1;  // only zeros follow a zero
  while (end < text_.size()) {
    const size_t digit = end + (text_[end] == '_');
    if (digit >= text_.size() || text_[digit] != '0') {
      break;
    }
    end = digit + 1;
  }
  return end;
}

bool Lexer::number() {
  if (!is_digit(text_[at_])) {
    return false;
  }
  const size_t end = float_end();
  if (end == at_) {
    add_integer(integer_end());
    return true;
  }
  std::string digits;
  for (const char byte : text_.substr(at_, end - at_)) {
    if (byte != '_') {
      digits += byte;
    }
  }
  add(Token::kFloat, text_.substr(at_, end - at_));
  tokens_.back().real = std::strtod(digits.c_str(), nullptr);
  at_ = end;
  return true;
}

void Lexer::add_integer(size_t end) {
  const std::string_view text = text_.substr(at_, end - at_);
  int base = 10;
  std::string digits;
  for (const char byte : text) {
    const char small = static_cast<char>(byte | 32);
    if (digits == "0" && (small == 'x' || small == 'o' || (small == 'b' && base == 10))) {
      base = small == 'x' ? 16 : small == 'o' ? 8 : 2;
      digits.clear();
    } else if (byte != '_') {
      digits += byte;
    }
  }
  int64_t integer = 0;
  const auto done = std::from_chars(digits.data(), digits.data() + digits.size(), integer, base);
  if (done.ec == std::errc()) {
    add(Token::kInteger, text);
    tokens_.back().integer = integer;
  } else if (base == 10) {
    add(Token::kBigInteger, arena_.copy(digits));
  } else {
    fail_unsupported(line_, {"the number ", text, " has more than 64 bits"});
  }
  at_ = end;
}

bool Lexer::name() {
  size_t end = at_;
  while (end < text_.size()) {
    size_t next = end;
    if (!is_word(next_char(text_, &next))) {
      break;
    }
    end = next;
  }
  if (end == at_) {
    return false;
  }
  size_t first = at_;
  const char32_t character = next_char(text_, &first);
  if (character >= 0x80 && !has_flag(character, kLetter)) {
    fail_at(line_, {"Invalid character in identifier"});
  }
  add(Token::kName, text_.substr(at_, end - at_));
  at_ = end;
  return true;
}

bool Lexer::string() {
  const char quote = text_[at_];
  if (quote != '\'' && quote != '"') {
    return false;
  }
  size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != quote) {
    end += 1 + (text_[end] == '\\');
  }
  if (end >= text_.size()) {
    return false;  // the quote is no operator: an unexpected character
  }
  add(Token::kString, unescaped(text_.substr(at_ + 1, end - at_ - 1), line_, arena_));
  pass(end + 1 - at_);
  return true;
}

void Lexer::operator_() {
  for (const Operator& known : kOperators) {
    if (at(known.text)) {
      balance(known.kind, known.text[0]);
      add(known.kind, known.text);
      at_ += known.text.size();
      return;
    }
  }
  fail_at(line_, {"unexpected char '", text_.substr(at_, utf8_size(text_[at_])), "' at ",
                  std::to_string(char_count(text_.substr(0, at_)))});
}

void Lexer::balance(Token kind, char byte) {
  if (kind == Token::kLeftBrace) {
    open_ += '}';
  } else if (kind == Token::kLeftParen) {
    open_ += ')';
  } else if (kind == Token::kLeftBracket) {
    open_ += ']';
  } else if (kind == Token::kRightBrace || kind == Token::kRightParen ||
             kind == Token::kRightBracket) {
    const std::string_view got(&byte, 1);
    if (open_.empty()) {
      fail_at(line_, {"unexpected '", got, "'"});
    }
    const char expected = open_.back();
    open_.pop_back();
    if (expected != byte) {
      fail_at(line_, {"unexpected '", got, "', expected '", std::string_view(&expected, 1), "'"});
    }
  }
}

}  // namespace

std::vector<LexedToken> lex(std::string_view source, Arena& arena) {
  return Lexer(source, arena).all();
}

}  // namespace headrace::text::jinja
