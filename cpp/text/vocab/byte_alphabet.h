#pragma once

// The alphabet in which byte-level vocabularies spell bytes (GPT-2's): 256 characters, of which
// printable Latin-1 stands for itself and the rest are U+0100 and on.

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text {

char32_t alphabet_char(uint8_t byte) noexcept;
/// The byte that a character stands for; -1 if it isn't of the alphabet.
int alphabet_byte(char32_t value) noexcept;

/// Appends the bytes that a spelling stands for. False, and nothing is appended, if a character
/// isn't of the alphabet. REQUIRES: UTF-8.
bool append_alphabet_bytes(std::string_view spelling, std::string* bytes);
/// Appends the spelling of bytes.
void append_alphabet_spelling(std::string_view bytes, std::string* spelling);

}  // namespace headrace::text
