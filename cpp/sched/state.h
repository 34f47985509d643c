#pragma once

// SchedulerState: the sequences with their states, and the blocks. README.md names the states.

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace headrace {

/// A sequence's rows in a plan.
struct PlannedRows {
  SeqId id = 0;
  Sequence* seq = nullptr;  ///< null: the sequence has ended since
  int32_t rows = 0;         ///< without drafts
  int32_t drafts = 0;
  bool samples = false;
  bool postponed = false;  ///< what it samples is dropped, and its last row doesn't count
  /// Slots that the plan holds, by ascending row: of the states behind rows and drafts, all but
  /// what goes to the sequence's own slot.
  std::vector<StateSave> saves = {};

  bool saves_last() const noexcept {
    return !saves.empty() && saves.back().row == rows + drafts - 1;
  }
};

struct SchedulerState {
  explicit SchedulerState(const SchedulerConfig& config_in)
      : config(config_in),
        blocks(config_in.num_blocks, kv_groups(config_in), config_in.enable_prefix_caching,
               config_in.num_host_blocks, config_in.num_state_slots,
               config_in.num_host_state_slots) {}

  const SchedulerConfig config;
  KvBlocks blocks;
  /// Owns every sequence that has not ended. Each sequence is in exactly one of `waiting` and
  /// `running`.
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences;
  std::set<Sequence*, SeniorFirst> waiting;  ///< hold no blocks
  std::vector<Sequence*> running;            ///< hold blocks; senior first
  /// The plan that is committed next, and the plan made ahead of that commit; in row order.
  std::vector<PlannedRows> pending, ahead;
  bool pending_copies = false, ahead_copies = false;  ///< whether these plans have copies
  std::set<std::pair<double, SeqId>> deadlines;       ///< of the sequences that have one
  /// Events since the last returned plan.
  std::vector<SeqId> expired, interrupted, preempted;
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0, prefix_host_hit_tokens = 0;
  uint64_t prefix_found_tokens = 0;
  uint64_t preemptions = 0, interruptions = 0;

  /// Makes a running sequence wait again.
  void preempt(Sequence& seq);
  /// Releases its blocks; none of its tokens counts as computed then.
  void drop_blocks(Sequence& seq);
  /// And its slots.
  void drop_all(Sequence& seq);
  /// Its rows are planned: what they begin with is of no use to it any more.
  void move_source(Sequence& seq, const PlannedRows& planned);
  /// Releases the slots that the plan holds for it.
  void drop_saves(PlannedRows& planned);
  /// Ends a sequence: releases its blocks and slots, takes it out of the plans and destroys it.
  void remove(Sequence& seq);

 private:
  void stop_running(Sequence& seq);
};

}  // namespace headrace
