#pragma once

// What a thread merges words in, and the words that it has seen.

#include <cstdint>
#include <vector>

#include "text/model/model.h"
#include "text/model/word_cache.h"

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

class BpeScratch final : public ModelScratch {
 public:
  std::vector<int32_t> ids;
  std::vector<BpeSymbol> symbols;
  std::vector<uint64_t> heap;
  WordCache words;

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
};

}  // namespace headrace::text
