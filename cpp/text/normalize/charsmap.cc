#include "text/normalize/charsmap.h"

#include <cstring>

#include "base/check.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

// A unit of the trie (Darts): a node's label, and where its children are.
constexpr uint32_t kValueBit = 1u << 31;

constexpr bool has_value(uint32_t unit) noexcept { return (unit >> 8 & 1) != 0; }
constexpr uint32_t label(uint32_t unit) noexcept { return unit & (kValueBit | 0xFF); }
constexpr uint32_t offset(uint32_t unit) noexcept {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

[[noreturn]] void fail_charsmap(std::string_view why) {
  throw_error(ErrorCode::kCorruptFile, "precompiled_charsmap: ", why);
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) {
    fail_charsmap("there is no trie");
  }
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  units_.resize(size / sizeof(uint32_t) <= bytes.size() ? size / sizeof(uint32_t) : 0);
  const size_t trie = units_.size() * sizeof(uint32_t);
  if (units_.empty() || trie > bytes.size()) {
    fail_charsmap("its trie is empty or longer than the file");
  }
  std::memcpy(units_.data(), bytes.data(), trie);
  replacements_ = bytes.substr(trie);
  if (invalid_utf8_at(replacements_) != kValid) {
    fail_charsmap("a replacement isn't UTF-8");
  }
  if (!replacements_.empty() && replacements_.back() != '\0') {
    fail_charsmap("the last replacement has no end");
  }
  for (uint32_t i = 0; i < units_.size(); ++i) {
    if ((units_[i] & kValueBit) != 0 || !has_value(units_[i])) {
      continue;
    }
    const uint32_t place = i ^ offset(units_[i]);
    const uint32_t at = place < units_.size() ? units_[place] & ~kValueBit : UINT32_MAX;
    if (at >= replacements_.size() || utf8_continues(replacements_[at])) {
      fail_charsmap("a rule has no replacement");
    }
  }
}

std::string_view Charsmap::content(uint32_t at) const noexcept {
  const size_t end = replacements_.find('\0', at);
  return std::string_view(replacements_).substr(at, end == std::string::npos ? end : end - at);
}

bool Charsmap::begins(char byte) const noexcept {
  const uint32_t node = offset(units_[0]) ^ static_cast<uint8_t>(byte);
  return byte != '\0' && node < units_.size() && label(units_[node]) == static_cast<uint8_t>(byte);
}

std::optional<Charsmap::Rule> Charsmap::find(std::string_view text, bool first) const noexcept {
  size_t size = 0;
  uint32_t place = 0;
  uint32_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) {
      break;
    }
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (has_value(unit)) {
      size = i + 1;
      place = units_[node] & ~kValueBit;
      if (first) {
        break;
      }
    }
  }
  return size == 0 ? std::nullopt : std::optional<Rule>(Rule{size, content(place)});
}

}  // namespace headrace::text
