#pragma once

// KvBlocks: BlockPool and PrefixIndex together. Sequences take blocks, publish those they have
// filled, share published ones by prefix, and release them; what is published stays findable
// until its block is needed. There may be a second tier of host blocks, in memory that is slower to
// reach: what is evicted moves there, and back when a prefix wants it.
//
// A node of the index has a block of each group of the cache's layers (kv_groups.h), in one of the
// two tiers each. A sequence's tables start with its published columns, a chain of the index,
// followed by private ones.
//
// Groups that keep all rows: whoever holds an indexed block holds all blocks before it, a parent is
// never released before its children, and the cached block released longest ago has no child in a
// block: every cached block can be evicted, and what is in blocks is a chain's beginning. With it
// go the node's blocks of the other groups, for without it nobody can use them.
//
// What follows it may be in host blocks, each of them in the order of its last use, children before
// their parents: a block comes there when it is evicted, which its children were before it, and a
// chain that is used again is used from its end. So the host block used longest ago is a leaf of
// the index, and forgetting it leaves no hole either.
//
// Groups with a window: a block may go alone, for a prefix needs only the last ones of such a
// group. So a node may lack them. If all groups have windows, a node may even have no block at all;
// it stays as long as nodes behind it have some.
//
// Where sequences have states (state_slots.h), blocks are of use only up to a snapshot: a prefix
// ends behind a node that has one. A snapshot goes with its node, wherever the node's blocks are.
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
#include "backend/contract/state_save.h"
#include "kv/block_pool.h"
#include "kv/cache_identity.h"
#include "kv/kv_groups.h"
#include "kv/prefix_index.h"
#include "kv/state_slots.h"

namespace headrace {

class KvBlocks {
 public:
  static constexpr int32_t kNone = BlockPool::kNone;

  /// Without prefix caching there is no use for host blocks, and they stay empty.
  /// Likewise for host slots. REQUIRES: num_blocks + num_host_blocks is an int32.
  KvBlocks(int32_t num_blocks, KvGroups groups, bool enable_prefix_caching,
           int32_t num_host_blocks = 0, int32_t num_state_slots = 0,
           int32_t num_host_state_slots = 0);
  KvBlocks(const KvBlocks&) = delete;  // the slots know the index
  KvBlocks& operator=(const KvBlocks&) = delete;

  /// A private block, evicting the least recently used cached one if none is free; kNone if all
  /// are held.
  int32_t take();
  /// Appends a column of blocks that take() gives; false, and nothing is taken, if there are too
  /// few. Allocates nothing if the tables have reserved it.
  bool take_column(KvTables& tables);
  /// The longest chain of whole blocks that hold the start of `tokens` under `identity`, as far as
  /// every group has what a row behind it reads; the caller holds that. Of each group that is at
  /// least the last column. With states the last column has a snapshot.
  KvTables acquire_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens);
  /// Brings back from host blocks what continues the tables' chain with `tokens`, each into a block
  /// that take() gives, and appends it. Returns how many columns were in host blocks. If it throws,
  /// the tables hold what has been brought so far, or nothing of it. REQUIRES: `tables` are what
  /// acquire_prefix gave for `tokens`.
  int32_t restore_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens,
                         KvTables& tables);
  /// The slots of a sequence that begins with what acquire_prefix and restore_prefix have given,
  /// or with nothing. REQUIRES: there are states.
  StateSlots::Start start_state(const KvTables& tables);
  /// Makes a slot that is held the snapshot behind column `index`, unless that is not in the index
  /// or has one; releases it. `is_shared` as for StateSlots::publish(). True: it has become the
  /// snapshot. REQUIRES: column `index` is held.
  bool publish_state(const KvTables& tables, size_t index, int32_t slot, bool is_shared);
  /// Forgets the snapshot `columns` before column `index` of the chain, if there is one that nobody
  /// holds. REQUIRES: as for publish_state(), which gave true; columns <= index.
  void drop_state(const KvTables& tables, size_t index, int32_t columns);
  /// Makes column `index`, whose keys and values are complete, findable under `tokens` (block_size
  /// ids). If another block holds the same chain already, that one takes its place in the table
  /// and the private copy is released. REQUIRES: the columns before it are published, and the last
  /// of them, and this one, are held in all groups.
  void publish(const CacheIdentity& identity, KvTables& tables, size_t index,
               std::span<const int32_t> tokens);
  /// Gives back what no row at `position`, or behind it, reads, of columns before `end`.
  void give_back(KvTables& tables, int32_t position, int32_t end);
  /// Releases all, last columns first, and of a column groups that keep all rows first. The tables
  /// are empty then.
  void release(KvTables& tables);
  /// Forgets every cached block and every host block, and the snapshots that nobody holds.
  void clear_cache();

  /// The copies that have come up since the last call: made in this order, before anything is
  /// written to a block or slot, they leave all blocks, slots and those of the host with what they
  /// should have.
  std::vector<BlockCopy> take_copies();

  bool prefix_caching() const noexcept { return enabled_; }
  bool has_states() const noexcept { return states_.num_slots() > 0; }
  StateSlots& states() noexcept { return states_; }
  const StateSlots& states() const noexcept { return states_; }
  const KvGroups& groups() const noexcept { return groups_; }
  /// Blocks that take() can give: free or cached.
  int32_t available() const noexcept { return pool_.num_free() + pool_.num_cached(); }
  const BlockPool& pool() const noexcept { return pool_; }
  /// Host blocks: free or cached.
  const BlockPool& host_pool() const noexcept { return host_pool_; }
  const PrefixIndex& index() const noexcept { return index_; }
  /// The node that is in a block, or a host block; kNone if there is none.
  int32_t node_in(int32_t block) const { return in_block_[static_cast<size_t>(block)].node; }
  int32_t node_in_host(int32_t host_block) const {
    return in_host_block_[static_cast<size_t>(host_block)].node;
  }
  /// Blocks that have moved to host blocks, and back.
  uint64_t moved_to_host() const noexcept { return moved_to_host_; }
  uint64_t moved_from_host() const noexcept { return moved_from_host_; }

 private:
  /// Where a node's block of a group is: one of the two is kNone.
  struct Whereabouts {
    int32_t block = kNone;
    int32_t host_block = kNone;
    bool exists() const noexcept { return block != kNone || host_block != kNone; }
  };
  /// Whose block it is.
  struct Owner {
    int32_t node = kNone;
    int32_t group = 0;
  };
  /// Nodes of a chain from its beginning, behind how many of them a row finds all blocks that it
  /// reads, and how many of those a hit has.
  struct Chain {
    std::vector<int32_t> nodes;
    int32_t found = 0;
    int32_t usable = 0;
  };

  struct HostBlock {
    int32_t node;
    size_t group;
    int32_t block;
  };

  Whereabouts& at(int32_t node, size_t group) {
    return nodes_[static_cast<size_t>(node) * groups_.size() + group];
  }
  const Whereabouts& at(int32_t node, size_t group) const {
    return nodes_[static_cast<size_t>(node) * groups_.size() + group];
  }
  /// The first column that a hit of `columns` holds of a group.
  int32_t first_held(size_t group, int32_t columns) const noexcept {
    return std::min(groups_.first_read(group, columns * groups_.block_size),
                    std::max(columns - 1, 0));
  }
  Chain find_chain(const CacheIdentity& identity, std::span<const int32_t> tokens,
                   bool in_blocks) const;
  bool is_in_blocks(int32_t node) const;
  void count_usable(Chain& chain, bool in_blocks) const;
  void put_in_block(int32_t node, size_t group, int32_t block);
  void leave_block(int32_t node, size_t group);
  void leave_host_block(int32_t node, size_t group);
  void evict(int32_t block);
  void forget_host_block(int32_t host_block);
  void move_to_host(int32_t node, size_t group);
  bool make_room_in_host(int32_t count);
  std::vector<HostBlock> hold_host_chain(const Chain& chain, int32_t first);
  void release_host_chain(const std::vector<HostBlock>& held);
  void hold_blocks_of(const Chain& chain, KvTables& tables);
  bool move_from_host(int32_t node, size_t group, int32_t& entry);
  int32_t fill_from_host(const Chain& chain, int32_t first, KvTables& tables);
  void shorten(KvTables& tables, int32_t columns);
  void forget(int32_t node);
  void erase_if_empty(int32_t node);
  PrefixIndex::Place behind(const CacheIdentity& identity, const KvTables& tables,
                            size_t columns) const;
  PrefixIndex::Content content_at(const CacheIdentity& identity, size_t index,
                                  std::span<const int32_t> tokens) const;
  void reserve_copies(size_t count);

  KvGroups groups_;
  bool enabled_;
  BlockPool pool_, host_pool_;
  PrefixIndex index_;
  std::vector<Whereabouts> nodes_;               ///< [node][group]
  std::vector<int32_t> free_nodes_;              ///< that the index hasn't
  std::vector<Owner> in_block_, in_host_block_;  ///< by block
  StateSlots states_;
  std::vector<BlockCopy> copies_;
  uint64_t moved_to_host_ = 0, moved_from_host_ = 0;
};

}  // namespace headrace
