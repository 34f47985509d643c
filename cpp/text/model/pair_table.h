#pragma once

// Which pairs of tokens merge, with what rank.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::text {

/// One merge: `left` and `right`, side by side, become `id`. Lower ranks come first.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  uint32_t rank = 0;
  int32_t id = 0;
};

/// Open addressing, 8 bytes an entry: 22 bits for each id, 20 for the rank.
class PairTable {
 public:
  static constexpr uint32_t kNoRank = (1u << 20) - 1;

  PairTable() { slots_.assign(kFirstSlots, kEmpty); }
  void reserve(size_t pairs);
  /// Of equal pairs the last counts. REQUIRES: ids of a Vocabulary, ranks below kNoRank. Throws
  /// Error(kLimitExceeded) for pairs that were chosen to collide.
  void insert(std::span<const Merge> merges);

  /// kNoRank: they don't merge.
  uint32_t rank(int32_t left, int32_t right) const noexcept {
    const uint64_t key = key_of(left, right);
    size_t slot = place(key);
    for (size_t probes = 0; probes <= max_probes_; slot = behind(slot), ++probes) {
      const uint64_t entry = slots_[slot];
      if (entry >> kRankBits == key) return static_cast<uint32_t>(entry) & kNoRank;
      if (entry == kEmpty) return kNoRank;
    }
    return kNoRank;
  }
  /// Calls it with each pair's left and right id and its rank.
  template <class Call>
  void for_each(const Call& call) const {
    constexpr uint64_t kIdMask = (uint64_t{1} << kIdBits) - 1;
    for (const uint64_t entry : slots_) {
      if (entry == kEmpty) continue;
      call(static_cast<int32_t>(entry >> (kIdBits + kRankBits)),
           static_cast<int32_t>(entry >> kRankBits & kIdMask),
           static_cast<uint32_t>(entry) & kNoRank);
    }
  }
  size_t count() const noexcept { return count_; }
  size_t memory_bytes() const noexcept { return slots_.capacity() * sizeof(uint64_t); }

 private:
  static constexpr size_t kFirstSlots = 256;
  static constexpr int kIdBits = 22;
  static constexpr int kRankBits = 20;
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static uint64_t key_of(int32_t left, int32_t right) noexcept {
    return static_cast<uint64_t>(left) << kIdBits | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const noexcept {
    uint64_t hash = key * 0x9E3779B97F4A7C15;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
    return static_cast<size_t>((hash >> 32) * slots_.size() >> 32);
  }
  size_t behind(size_t slot) const noexcept { return slot + 1 == slots_.size() ? 0 : slot + 1; }
  static size_t slots_for(size_t pairs) noexcept { return std::max(kFirstSlots, pairs * 2 + 8); }
  void grow(size_t slots);
  void insert(uint64_t key, uint32_t rank);

  std::vector<uint64_t> slots_;  ///< at most half full: fuller ones slow encoding down
  size_t count_ = 0;
  size_t max_probes_ = 0;  ///< no pair is farther from its place
};

}  // namespace headrace::text
