#include "text/vocab/byte_alphabet.h"

#include <array>

#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

constexpr size_t kAlphabetEnd = 0x144;

struct ByteAlphabet {
  std::array<char16_t, 256> chars{};
  std::array<int16_t, kAlphabetEnd> bytes{};
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet made;
  for (int16_t& byte : made.bytes) byte = -1;
  size_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const size_t value = itself ? byte : next++;
    made.chars[byte] = static_cast<char16_t>(value);
    made.bytes[value] = static_cast<int16_t>(byte);
  }
  return made;
}

constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

}  // namespace

char32_t alphabet_char(uint8_t byte) noexcept { return kByteAlphabet.chars[byte]; }

int alphabet_byte(char32_t value) noexcept {
  return value < kAlphabetEnd ? kByteAlphabet.bytes[value] : -1;
}

bool append_alphabet_bytes(std::string_view spelling, std::string* bytes) {
  const size_t before = bytes->size();
  bytes->resize(before + spelling.size());  // at most
  char* out = bytes->data() + before;
  const char* at = spelling.data();
  const char* const end = at + spelling.size();
  while (at < end) {
    size_t value = static_cast<uint8_t>(*at++);
    if (value >= 0x80) {  // of the alphabet only with two bytes
      value = value < 0xE0 ? (value & 31) << 6 | (static_cast<uint8_t>(*at++) & 63) : kAlphabetEnd;
    }
    const int byte = value < kAlphabetEnd ? kByteAlphabet.bytes[value] : -1;
    if (byte < 0) {
      bytes->resize(before);
      return false;
    }
    *out++ = static_cast<char>(byte);
  }
  bytes->resize(static_cast<size_t>(out - bytes->data()));
  return true;
}

void append_alphabet_spelling(std::string_view bytes, std::string* spelling) {
  for (const char byte : bytes) append_utf8(alphabet_char(static_cast<uint8_t>(byte)), spelling);
}

}  // namespace headrace::text
