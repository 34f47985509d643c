// What a scenario checks of slots and states at every step.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cpp/sched/scenario.h"

namespace headrace::fake {

/// What one slice stores, no other loads or stores.
void Scenario::check_slots(const StepPlan& plan) {
  std::map<int32_t, SeqId> writers;
  for (const PlannedSeq& seq : plan.seqs) {
    if (!kv_.has_states()) {
      ASSERT_TRUE(seq.state_in == kZeroState && seq.state_out == kZeroState && seq.saves.empty());
      continue;
    }
    ASSERT_EQ(seq.state_in == kZeroState, seq.start_pos == 0);
    std::set<int32_t> own = {seq.state_in};
    int32_t row = -1;
    for (const StateSave& save : seq.saves) {
      ASSERT_GT(save.row, row);
      row = save.row;
      ASSERT_TRUE(own.insert(save.slot).second && writers.emplace(save.slot, seq.id).second);
    }
    const int32_t rows = seq.num_tokens + seq.num_drafts;
    ASSERT_LT(row, rows - 1) << "the last row's state goes to state_out";
    if (seq.num_drafts > 0) {
      ASSERT_EQ(std::ssize(seq.saves), rows - 1);
    } else {
      saved_ += seq.saves.size() + (seq.state_out != seq.state_in && seq.state_in != kZeroState);
      ASSERT_TRUE(config_.enable_prefix_caching || seq.saves.empty());
    }
    ASSERT_TRUE(writers.emplace(seq.state_out, seq.id).second);
    ASSERT_TRUE(seq.state_out == seq.state_in || !own.contains(seq.state_out));
  }
  for (const auto& [slot, id] : writers) {
    ASSERT_TRUE(slot >= 0 && slot < config_.num_state_slots) << slot;
    for (const PlannedSeq& seq : plan.seqs) {
      ASSERT_TRUE(seq.state_in != slot || seq.id == id) << slot << " of " << id;
    }
  }
}

/// Behind a step's copies, before its rows: each sequence begins with the state behind all of
/// its computed tokens.
void Scenario::check_states(const StepPlan& plan) {
  for (const PlannedSeq& seq : plan.seqs) {
    const auto job = jobs_.find(seq.id);
    if (seq.state_in == kZeroState || job == jobs_.end()) continue;
    const SeqSpec& spec = job->second.spec;
    uint64_t state = first_value(spec);
    for (int32_t p = 0; p < seq.start_pos; ++p) {
      const int32_t token = job->second.tokens[static_cast<size_t>(p)];
      state = stored_value(spec, state, p, token, rope_len()(seq.id, p));
    }
    ASSERT_EQ(kv_.slot(seq.state_in), state) << "sequence " << seq.id << " at " << seq.start_pos;
  }
}

/// Every slot is free, a snapshot, a running sequence's, or saved by a plan that is not committed.
void Scenario::check_slot_counts() {
  ASSERT_EQ(stats_.state_slots, config_.num_state_slots);
  ASSERT_GE(stats_.free_state_slots, 0);
  ASSERT_GE(stats_.snapshots, 0);
  if (!kv_.has_states()) return;
  const int32_t others = stats_.state_slots - stats_.free_state_slots - stats_.snapshots;
  ASSERT_GE(others, stats_.running);
  ASSERT_LE(stats_.host_snapshots, config_.num_host_state_slots);
  ASSERT_TRUE(config_.enable_prefix_caching || stats_.snapshots + stats_.host_snapshots == 0);
  ASSERT_GE(stats_.prefix_found_tokens, stats_.prefix_hit_tokens);
}

/// Between steps no slot is lost.
void Scenario::check_slots_at_rest() {
  if (!flights_.empty()) return;
  // What was to become a snapshot, but another was first, may be what a sequence goes on from.
  const int32_t others = stats_.state_slots - stats_.free_state_slots - stats_.snapshots;
  ASSERT_LE(others, 2 * stats_.running);
}

}  // namespace headrace::fake
