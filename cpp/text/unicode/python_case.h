#pragma once

// What Python's `str` methods do, in the version of Unicode that the tables were made with: for
// chat templates.

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text {

/// What Python thinks of a character: str.isalpha() and so on.
enum PythonFlag : uint16_t {
  kPyAlpha = 1 << 0,
  kPyDecimal = 1 << 1,
  kPyDigit = 1 << 2,
  kPyNumeric = 1 << 3,
  kPySpace = 1 << 4,      ///< what strip() and split() take for whitespace
  kPyPrintable = 1 << 5,  ///< repr() writes it as it is
  kPyLower = 1 << 6,
  kPyUpper = 1 << 7,
  kPyTitle = 1 << 8,  ///< titlecase letters: neither upper nor lower
  kPyCased = 1 << 9,
  kPyIgnorable = 1 << 10,  ///< no matter to what a sigma in front of it or behind it becomes
};

uint16_t python_flags(char32_t value) noexcept;

inline bool python_is(char32_t value, uint16_t flags) noexcept {
  return (python_flags(value) & flags) != 0;
}

// str.lower(), upper(), title(), capitalize(), swapcase(), casefold(). REQUIRES: valid UTF-8.
std::string python_lower(std::string_view text);
std::string python_upper(std::string_view text);
std::string python_title(std::string_view text);
std::string python_capitalize(std::string_view text);
std::string python_swapcase(std::string_view text);
std::string python_casefold(std::string_view text);

// str.islower(), isupper(), istitle(): at least one cased character, and all of them so.
bool python_islower(std::string_view text) noexcept;
bool python_isupper(std::string_view text) noexcept;
bool python_istitle(std::string_view text) noexcept;
/// str.isalpha(), isspace(), isdigit(), isalnum() (kPyAlpha | kPyNumeric)...: not empty, and every
/// character has one of the flags.
bool python_all(std::string_view text, uint16_t flags) noexcept;

}  // namespace headrace::text
