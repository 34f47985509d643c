#pragma once

// StateSlots: who has which state slot. A slot has all layers' states of one sequence at one
// position. Numbers only; the memory is the backend's.
//
// A slot is free, held, or a snapshot that nobody holds. A snapshot is the state behind a node of
// the prefix index: behind all tokens of its chain. It belongs to that node, which has one at most,
// and goes with it; it may go before the node does. It stays a snapshot while it is held.
//
// Who needs a slot, and finds none free, gets that of a snapshot: of the one used longest ago among
// those that were only passed by, or of all if there is none such. One was passed by if there is
// another further down the same chain, and it isn't known that two sequences share the chain up to
// it. Where there are host slots, its contents move there. A snapshot is in a slot or in a host
// slot.
//
// Not thread safe. Only construction, take() and start() allocate; where that fails, nothing has
// changed. A broken REQUIRES throws InternalError.

#include <cstdint>
#include <vector>

#include "backend/contract/block_copy.h"
#include "backend/contract/state_save.h"
#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace headrace {

class StateSlots {
 public:
  static constexpr int32_t kNone = BlockPool::kNone;

  /// All free. Snapshots belong to nodes 0 .. num_nodes - 1 of `index`, which outlives this.
  /// REQUIRES: no number is negative.
  StateSlots(const PrefixIndex& index, int32_t num_nodes, int32_t num_slots,
             int32_t num_host_slots);

  /// A slot for one holder; kNone if all are held.
  int32_t take();
  /// One more holder. REQUIRES: held.
  void retain(int32_t slot) { pool_.retain(slot); }
  /// One holder less. REQUIRES: held.
  void release(int32_t slot) { pool_.release(slot); }

  /// Where a sequence has its state.
  struct Start {
    int32_t live = kNone;    ///< its own slot; kNone: all are held, and nothing has changed
    int32_t source = kNone;  ///< the snapshot that it begins with, if that isn't in `live`
  };
  /// For a sequence that begins behind `node`, or with kZeroState where that is kNone: slots that
  /// it holds. If there is no slot beside the snapshot's, `live` is that one, and the node has none
  /// any more. From a host slot, a copy fills `live`. REQUIRES: the node has a snapshot.
  Start start(int32_t node);

  /// Makes a held slot the snapshot of `node`, and releases it. `is_shared`: two sequences share
  /// the chain up to there. False: the node has one in a slot already, and that stays.
  bool publish(int32_t node, int32_t slot, bool is_shared);
  bool has_snapshot(int32_t node) const noexcept { return at(node).exists(); }
  /// Forgets the node's snapshot, unless it has none, or one that is held.
  void drop(int32_t node);
  /// The node goes. REQUIRES: nobody holds its snapshot.
  void forget(int32_t node);
  /// Forgets all snapshots that nobody holds.
  void clear();

  /// The copies that have come up since clear_copies(): made in this order, before anything is
  /// written to a slot, they leave every slot and host slot with what it should have.
  const std::vector<BlockCopy>& copies() const noexcept { return copies_; }
  void clear_copies() noexcept { copies_.clear(); }

  int32_t num_slots() const noexcept { return pool_.num_blocks(); }
  int32_t num_free() const noexcept { return pool_.num_free(); }
  /// Slots that take() can give.
  int32_t available() const noexcept { return pool_.num_free() + pool_.num_cached(); }
  /// Slots that are snapshots, held or not.
  int32_t num_snapshots() const noexcept { return num_snapshots_; }
  int32_t num_host_snapshots() const noexcept { return host_pool_.num_cached(); }
  /// Snapshots that have been published, that have left their slots for others, and that have
  /// been copied from host slots.
  uint64_t written() const noexcept { return written_; }
  uint64_t evicted() const noexcept { return evicted_; }
  uint64_t restored() const noexcept { return restored_; }

 private:
  struct Node {
    int32_t slot = kNone;       ///< its snapshot's
    int32_t host_slot = kNone;  ///< likewise; one of the two is kNone
    int32_t behind = 0;         ///< snapshots further down its chains
    bool is_shared = false;     ///< a sequence has begun with it, or another has come past it
    bool exists() const noexcept { return slot != kNone || host_slot != kNone; }
  };

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t least_useful(const BlockPool& pool, const std::vector<int32_t>& node_in) const;
  void evict(int32_t slot);
  bool make_room_in_host();
  void leave_slot(int32_t node);
  void leave_host_slot(int32_t node);
  void count(int32_t node, int32_t change) noexcept;

  const PrefixIndex& index_;
  BlockPool pool_, host_pool_;  ///< a snapshot that nobody holds is a cached one
  std::vector<Node> nodes_;
  std::vector<int32_t> node_in_, node_in_host_;  ///< by slot; kNone: no snapshot
  std::vector<BlockCopy> copies_;
  int32_t num_snapshots_ = 0;
  uint64_t written_ = 0, evicted_ = 0, restored_ = 0;
};

}  // namespace headrace
