#include "text/normalize/base64.h"

#include <array>
#include <cstdint>

#include "base/check.h"

namespace headrace::text {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;

constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  return values;
}();

}  // namespace

std::string base64_bytes(std::string_view text) {
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (text.size() % 4 != 0) {
    throw_error(ErrorCode::kCorruptFile, "base64 of ", text.size(),
                " characters, which is not a multiple of 4");
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool padded = i >= text.size() - padding;
    const uint8_t value = padded ? 0 : kValues[static_cast<uint8_t>(text[i])];
    if (value == kNoDigit) {
      throw_error(ErrorCode::kCorruptFile, "base64 has a wrong character at byte ", i);
    }
    group = group << 6 | value;
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) {
        bytes.push_back(static_cast<char>(group >> shift & 0xFF));
      }
      group = 0;
    }
  }
  for (size_t i = 0; i < padding; ++i) {
    if (bytes.back() != '\0') {
      throw_error(ErrorCode::kCorruptFile, "base64 with bits behind its end");
    }
    bytes.pop_back();
  }
  return bytes;
}

}  // namespace headrace::text
