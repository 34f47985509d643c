#pragma once

// The words that a thread has seen, with their tokens.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace headrace::text {

/// The tokens of a short word, in one line of cache.
struct alignas(64) CachedWord {
  static constexpr size_t kMaxBytes = 26;
  static constexpr size_t kMaxIds = 8;
  uint32_t hash = 0;
  uint8_t size = 0;  ///< 0: none
  uint8_t count = 0;
  std::array<char, kMaxBytes> word{};
  std::array<int32_t, kMaxIds> ids{};
};
static_assert(sizeof(CachedWord) == 64);

/// A word takes the place of another one whose hash is like its own.
class WordCache {
 public:
  const CachedWord* find(std::string_view word, uint32_t hash) const noexcept {
    const CachedWord& cached = words_[hash % kWords];
    const bool same = cached.hash == hash && cached.size == word.size() &&
                      std::memcmp(cached.word.data(), word.data(), word.size()) == 0;
    return same ? &cached : nullptr;
  }

  void keep(std::string_view word, uint32_t hash, const int32_t* tokens, size_t count) noexcept {
    if (word.size() > CachedWord::kMaxBytes || count > CachedWord::kMaxIds) return;
    CachedWord& cached = words_[hash % kWords];
    cached.hash = hash;
    cached.size = static_cast<uint8_t>(word.size());
    cached.count = static_cast<uint8_t>(count);
    std::copy(word.begin(), word.end(), cached.word.begin());
    std::copy(tokens, tokens + count, cached.ids.begin());
  }

 private:
  static constexpr size_t kWords = 16384;
  std::vector<CachedWord> words_ = std::vector<CachedWord>(kWords);
};

}  // namespace headrace::text
