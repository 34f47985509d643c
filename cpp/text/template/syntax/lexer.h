#pragma once

// A template's text as tokens, as jinja2 cuts it with trim_blocks and lstrip_blocks.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/template/values/arena.h"

namespace headrace::text::jinja {

// clang-format off
enum class Token : uint8_t {
  kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd,
  kName, kString, kInteger, kBigInteger, kFloat,
  kAdd, kSub, kDiv, kFloorDiv, kMul, kMod, kPow, kTilde,
  kLeftBracket, kRightBracket, kLeftParen, kRightParen, kLeftBrace, kRightBrace,
  kEq, kNe, kGt, kGe, kLt, kLe, kAssign, kDot, kColon, kPipe, kComma, kSemicolon,
  kEnd,
};
// clang-format on

struct LexedToken {
  Token kind = Token::kEnd;
  uint32_t line = 1;
  std::string_view text;  ///< data; a name; a string's value; a number's digits; an operator
  union {
    int64_t integer = 0;
    double real;
  };
};

/// The last token is kEnd. The texts live in the arena. Throws Fault with the line.
std::vector<LexedToken> lex(std::string_view source, Arena& arena);

/// The value of a string literal without its quotes: Python's escapes.
std::string_view unescaped(std::string_view literal, uint32_t line, Arena& arena);

}  // namespace headrace::text::jinja
