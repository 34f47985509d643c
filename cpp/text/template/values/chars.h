#pragma once

// Texts as Python sees them: sequences of characters.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/unicode/utf8.h"

namespace headrace::text::jinja {

/// str.isspace of one character.
bool is_space(char32_t character) noexcept;

bool is_ascii(std::string_view text) noexcept;
/// Characters, which is Python's len().
size_t char_count(std::string_view text) noexcept;
/// Where the character of that number begins; the end if there are not so many.
size_t byte_of_char(std::string_view text, size_t number) noexcept;
/// Where the character before the byte `end` begins. REQUIRES: 0 < end.
size_t char_before(std::string_view text, size_t end) noexcept;

/// str.strip() and its halves.
std::string_view strip_space_left(std::string_view text) noexcept;
std::string_view strip_space_right(std::string_view text) noexcept;

}  // namespace headrace::text::jinja
