#pragma once

// KvBlocks: BlockPool and PrefixIndex together. Sequences take blocks, publish those they have
// filled, share published ones by prefix, and release them; what is published stays findable
// until its block is needed.
//
// A sequence's block table starts with its published blocks, a chain of the index, followed by
// private ones. Therefore whoever holds an indexed block holds all blocks before it, a parent is
// never released before its children, and the cached block released longest ago is always a leaf:
// evicting it never leaves a hole in a chain, and every cached block can be evicted.
//
// Not thread safe. Only construction and acquire_prefix() allocate.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace headrace {

class KvBlocks {
 public:
  static constexpr int32_t kNone = BlockPool::kNone;

  KvBlocks(int32_t num_blocks, int32_t block_size, bool enable_prefix_caching);

  /// A private block, evicting the least recently used cached one if none is free; kNone if all
  /// are held.
  int32_t take();
  /// The longest chain of whole blocks that hold the start of `tokens`; the caller holds them.
  std::vector<int32_t> acquire_prefix(uint64_t cache_namespace, std::span<const int32_t> tokens);
  /// Makes table[index], whose keys and values are complete, findable under `tokens` (block_size
  /// ids). If another block holds the same chain already, that one takes its place in the table
  /// and the private copy is released. REQUIRES: table[0 .. index) are published.
  void publish(uint64_t cache_namespace, std::span<int32_t> table, size_t index,
               std::span<const int32_t> tokens);
  /// Releases a whole table, last block first.
  void release(std::span<const int32_t> table);
  /// Forgets every cached block.
  void clear_cache();

  bool prefix_caching() const noexcept { return enabled_; }
  int32_t block_size() const noexcept { return block_size_; }
  /// Blocks that take() can give: free or cached.
  int32_t available() const noexcept { return pool_.num_free() + pool_.num_cached(); }
  const BlockPool& pool() const noexcept { return pool_; }
  const PrefixIndex& index() const noexcept { return index_; }

 private:
  void evict(int32_t block);

  int32_t block_size_;
  bool enabled_;
  BlockPool pool_;
  PrefixIndex index_;
};

}  // namespace headrace
