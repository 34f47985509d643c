#pragma once

// SchedulerState: the sequences, where they are, and the blocks. README.md names the states.

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

/// What a sequence has in a plan.
struct PlannedRows {
  SeqId id = 0;
  Sequence* seq = nullptr;  ///< null: it has ended since
  int32_t rows = 0;         ///< without drafts
  int32_t drafts = 0;
  bool samples = false;
};

struct SchedulerState {
  explicit SchedulerState(const SchedulerConfig& config_in)
      : config(config_in),
        blocks(config_in.num_blocks, config_in.block_size, config_in.enable_prefix_caching,
               config_in.num_host_blocks) {}

  const SchedulerConfig config;
  KvBlocks blocks;
  /// Owns every sequence that has not ended. Each is in exactly one of `waiting` and `running`.
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences;
  std::set<Sequence*, SeniorFirst> waiting;  ///< hold no blocks
  std::vector<Sequence*> running;            ///< hold blocks; senior first
  /// The plan that is to be committed next, and the one planned ahead of its commit; in row order.
  std::vector<PlannedRows> pending, ahead;
  bool pending_copies = false, ahead_copies = false;  ///< those plans have copies
  std::set<std::pair<double, SeqId>> deadlines;       ///< of the sequences that have one
  /// Since the last plan that was returned.
  std::vector<SeqId> expired, interrupted, preempted;
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0, prefix_host_hit_tokens = 0;
  uint64_t preemptions = 0, interruptions = 0;

  /// Sends a running sequence back to wait.
  void preempt(Sequence& seq);
  /// Releases its blocks: nothing of it is computed any more.
  void drop_blocks(Sequence& seq);
  /// Ends a sequence: releases its blocks, takes it out of the plans and destroys it.
  void remove(Sequence& seq);

 private:
  void stop_running(Sequence& seq);
};

}  // namespace headrace
