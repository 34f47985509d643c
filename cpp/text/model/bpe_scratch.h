#pragma once

// What a thread merges words in, and the words that it has seen.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/model/model.h"

namespace headrace::text {

struct BpeSymbol {
  static constexpr uint32_t kNone = static_cast<uint32_t>(-1);
  int32_t id = 0;
  uint32_t before = kNone;
  uint32_t next = kNone;
  uint32_t size = 0;    ///< in bytes
  uint32_t rank = 0;    ///< of the pair with the next one
  bool merged = false;  ///< into one before
};

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

class BpeScratch final : public ModelScratch {
 public:
  std::vector<int32_t> ids;
  std::vector<BpeSymbol> symbols;
  std::vector<uint64_t> heap;

  void add(int32_t id, uint32_t size) {
    BpeSymbol symbol;
    symbol.id = id;
    symbol.size = size;
    const auto at = static_cast<uint32_t>(symbols.size());
    if (at > 0) {
      symbol.before = at - 1;
      symbols[at - 1].next = at;
    }
    symbols.push_back(symbol);
  }

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
