#pragma once

// KvBlocks: BlockPool and PrefixIndex together. Sequences take blocks, publish those they have
// filled, share published ones by prefix, and release them; what is published stays findable
// until its block is needed. There may be a second tier of host blocks, in memory that is slower to
// reach: what is evicted moves there, and back when a prefix wants it.
//
// A sequence's block table starts with its published blocks, a chain of the index, followed by
// private ones. Therefore whoever holds an indexed block holds all blocks before it, a parent is
// never released before its children, and the cached block released longest ago has no child in a
// block: every cached block can be evicted, and what is in blocks is a chain's beginning.
//
// What follows it may be in host blocks, each of them in the order of its last use, children before
// their parents: a block comes there when it is evicted, which its children were before it, and a
// chain that is used again is used from its end. So the host block used longest ago is a leaf of
// the index, and forgetting it leaves no hole either. A node is in one place, never in both tiers.
//
// The copies between the tiers are only listed here, for others to make: see take_copies().
//
// Not thread safe. Only construction, acquire_prefix(), restore_prefix() and take_copies()
// allocate, and take() if more copies are waiting than ever before; where that fails, nothing has
// changed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/block_copy.h"
#include "kv/block_pool.h"
#include "kv/cache_identity.h"
#include "kv/prefix_index.h"

namespace headrace {

class KvBlocks {
 public:
  static constexpr int32_t kNone = BlockPool::kNone;

  /// Without prefix caching there is no use for host blocks, and they stay empty.
  /// REQUIRES: num_blocks + num_host_blocks is an int32.
  KvBlocks(int32_t num_blocks, int32_t block_size, bool enable_prefix_caching,
           int32_t num_host_blocks = 0);

  /// A private block, evicting the least recently used cached one if none is free; kNone if all
  /// are held.
  int32_t take();
  /// The longest chain of whole blocks that hold the start of `tokens` under `identity`; the caller
  /// holds them.
  std::vector<int32_t> acquire_prefix(const CacheIdentity& identity,
                                      std::span<const int32_t> tokens);
  /// Brings back from host blocks what continues `table`'s chain with `tokens`, each into a block
  /// that take() gives, and appends it. Returns how many there were. If it throws, `table` holds
  /// what has been brought so far. REQUIRES: `table` is what acquire_prefix gave for `tokens`.
  int32_t restore_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens,
                         std::vector<int32_t>& table);
  /// Makes table[index], whose keys and values are complete, findable under `tokens` (block_size
  /// ids). If another block holds the same chain already, that one takes its place in the table
  /// and the private copy is released. REQUIRES: table[0 .. index) are published.
  void publish(const CacheIdentity& identity, std::span<int32_t> table, size_t index,
               std::span<const int32_t> tokens);
  /// Releases a whole table, last block first.
  void release(std::span<const int32_t> table);
  /// Forgets every cached block and every host block.
  void clear_cache();

  /// The copies that have come up since the last call: made in this order, before anything is
  /// written to a block, they leave every block and host block with what the index says.
  std::vector<BlockCopy> take_copies();

  bool prefix_caching() const noexcept { return enabled_; }
  int32_t block_size() const noexcept { return block_size_; }
  /// Blocks that take() can give: free or cached.
  int32_t available() const noexcept { return pool_.num_free() + pool_.num_cached(); }
  const BlockPool& pool() const noexcept { return pool_; }
  /// Host blocks: free or cached.
  const BlockPool& host_pool() const noexcept { return host_pool_; }
  const PrefixIndex& index() const noexcept { return index_; }
  /// The node that is in a block, or a host block; kNone if there is none.
  int32_t node_in(int32_t block) const { return in_block_[static_cast<size_t>(block)]; }
  int32_t node_in_host(int32_t host_block) const {
    return in_host_block_[static_cast<size_t>(host_block)];
  }
  /// Blocks that have moved to host blocks, and back.
  uint64_t moved_to_host() const noexcept { return moved_to_host_; }
  uint64_t moved_from_host() const noexcept { return moved_from_host_; }

 private:
  /// Where a node is: one of the two is kNone.
  struct Whereabouts {
    int32_t block = kNone;
    int32_t host_block = kNone;
  };

  Whereabouts& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  void put_in_block(int32_t node, int32_t block);
  void leave_host_block(int32_t node);
  void evict(int32_t block);
  void move_to_host(int32_t node);
  bool move_from_host(int32_t node, std::vector<int32_t>& table);
  void touch_host_chain(const CacheIdentity& identity, std::span<const int32_t> tokens,
                        std::span<const int32_t> table);
  void forget(int32_t node);
  PrefixIndex::Place behind(const CacheIdentity& identity, std::span<const int32_t> table) const;
  PrefixIndex::Content content_at(const CacheIdentity& identity, size_t index,
                                  std::span<const int32_t> tokens) const;
  void reserve_copies(size_t count);

  int32_t block_size_;
  bool enabled_;
  BlockPool pool_, host_pool_;
  PrefixIndex index_;
  std::vector<Whereabouts> nodes_;                 ///< by node
  std::vector<int32_t> free_nodes_;                ///< that are nowhere
  std::vector<int32_t> in_block_, in_host_block_;  ///< nodes
  std::vector<BlockCopy> copies_;
  uint64_t moved_to_host_ = 0, moved_from_host_ = 0;
};

}  // namespace headrace
