#pragma once

// BlockPool: who holds which KV block. Numbers only; the memory is the backend's.
//
// A block is free, held by one or more sequences, or cached: held by nobody but worth keeping.
// Cached blocks are listed in the order of their last release. All calls but construction are
// O(1) and allocate nothing. Not thread safe. A broken REQUIRES throws InternalError.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

class BlockPool {
 public:
  static constexpr int32_t kNone = -1;

  /// Blocks 0 .. num_blocks - 1, all free. REQUIRES: num_blocks >= 0.
  explicit BlockPool(int32_t num_blocks);

  /// A free block, now with one holder; kNone if none is free.
  int32_t take();
  /// One more holder. REQUIRES: held or cached.
  void retain(int32_t block);
  /// One holder less; with the last one the block becomes cached if keep() was called, else free.
  /// REQUIRES: held.
  void release(int32_t block);
  /// From now on worth keeping. REQUIRES: held.
  void keep(int32_t block);
  /// The cached block released longest ago; kNone if there is none.
  int32_t oldest_cached() const noexcept { return next_[sentinel()]; }
  /// The one that was released next after it; kNone if there is none. REQUIRES: cached.
  int32_t next_cached(int32_t block) const;
  /// No longer worth keeping: free. REQUIRES: cached.
  void drop(int32_t block);

  int32_t num_blocks() const noexcept { return static_cast<int32_t>(holders_.size()); }
  int32_t num_free() const noexcept { return static_cast<int32_t>(free_.size()); }
  int32_t num_cached() const noexcept { return num_cached_; }
  int32_t num_held() const noexcept { return num_blocks() - num_free() - num_cached(); }
  /// Sequences that hold the block.
  int32_t holders(int32_t block) const { return holders_[checked(block)]; }
  bool is_cached(int32_t block) const { return keep_[checked(block)] && holders(block) == 0; }

 private:
  size_t checked(int32_t block) const;
  size_t sentinel() const noexcept { return holders_.size(); }
  void link_newest(size_t block) noexcept;
  void unlink(size_t block) noexcept;

  std::vector<int32_t> holders_;
  std::vector<uint8_t> keep_;
  std::vector<int32_t> free_;  ///< a stack: what was just freed is warm
  /// Ring of cached blocks, oldest after the sentinel. A sentinel link reads kNone when empty.
  std::vector<int32_t> previous_, next_;
  int32_t num_cached_ = 0;
};

}  // namespace headrace
