#pragma once

// Scheduler: which tokens the next step computes. A pure state machine: no thread, clock, device
// or tensor. README.md in this folder is the normative description.
//
// One round: plan(now) -> the engine runs the step -> commit(sampled tokens). add() and cancel()
// may come at any time between rounds. Not thread safe: the loop thread owns it.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

using SeqId = uint64_t;

struct SchedulerConfig {
  int32_t max_num_seqs = 64;             ///< sequences in a step
  int32_t max_num_batched_tokens = 512;  ///< rows in a step; >= max_num_seqs
  int32_t max_prefill_chunk = 0;  ///< rows of one prompt per step; 0 = no bound but the budget
  int32_t max_model_len = 0;
  int32_t block_size = 64;
  int32_t num_blocks = 0;
  bool enable_prefix_caching = true;
};

/// What the scheduler needs to know of a request.
struct SeqSpec {
  std::vector<int32_t> prompt;  ///< >= 1 ids
  int32_t max_tokens = 1;       ///< >= 1; prompt + max_tokens <= max_model_len
  int32_t min_tokens = 0;
  std::vector<int32_t> end_tokens;  ///< EOS (unless ignored) and stop tokens; sorted, unique
  std::vector<std::vector<int32_t>> stop_sequences;
  int32_t priority = 0;           ///< lower first
  double deadline = 0;            ///< in the clock of plan(now); 0 = none
  bool read_prefix_cache = true;  ///< false for prompt_logprobs
  /// Identity of what else decides keys and values (adapter, media, dynamic RoPE length): blocks
  /// are shared only within one namespace.
  uint64_t cache_namespace = 0;
  bool wants_all_prompt_logits = false;  ///< logits for every computed prompt position
};

enum class SeqEnd : uint8_t { kNone, kStopToken, kStopSequence, kLength, kCancelled, kDeadline };

/// The rows that one sequence has in a step.
struct PlannedSeq {
  SeqId id = 0;
  int32_t start_pos = 0;   ///< tokens already computed; the first row's position
  int32_t num_tokens = 0;  ///< rows
  /// The last row's logits give the next token.
  bool samples = false;
  std::span<const int32_t> tokens;  ///< [num_tokens] ids; valid until commit()
  std::span<const int32_t> blocks;  ///< block table; valid until commit()
};

struct StepPlan {
  std::vector<PlannedSeq> seqs;        ///< in row order
  std::vector<SeqId> first_scheduled;  ///< entered a step for the first time, with this plan
  std::vector<SeqId> preempted;        ///< lost their blocks to make room; will be recomputed
  std::vector<SeqId> expired;          ///< deadline passed: already ended, not part of the step
  int32_t num_rows = 0;
  bool empty() const noexcept { return seqs.empty(); }
};

/// What the step did for one sequence.
struct CommittedSeq {
  SeqId id = 0;
  std::optional<int32_t> token;  ///< the sampled token, part of the output
  SeqEnd end = SeqEnd::kNone;    ///< other than kNone: the sequence has left the scheduler
};

struct SchedulerStats {
  int32_t waiting = 0, running = 0;
  int32_t total_blocks = 0, free_blocks = 0, cached_blocks = 0;
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0, preemptions = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  /// REQUIRES: fits() is true.
  SeqId add(SeqSpec spec);
  /// False: even alone, prompt + max_tokens never fit the blocks.
  bool fits(int64_t prompt_tokens, int64_t max_tokens) const;
  /// Ends a sequence now; false if it has already ended. Between plan() and commit() the
  /// sequence's rows are still computed and its token is dropped.
  bool cancel(SeqId id);

  /// The next step. Empty when nothing can run. REQUIRES: the last plan has been committed.
  StepPlan plan(double now);
  /// `sampled[i]` is the token of the i-th planned sequence with samples == true.
  std::vector<CommittedSeq> commit(std::span<const int32_t> sampled);
  /// The step could not be computed: ends the sequences of the plan (kCancelled), frees their
  /// blocks and caches none of them.
  std::vector<SeqId> abandon_step();

  bool has_work() const;                               ///< something waits or runs
  int32_t cached_prompt_tokens(SeqId id) const;        ///< prefix hit when it was first admitted
  int32_t rope_len(SeqId id, int32_t position) const;  ///< StepBatch::rope_lens
  SchedulerStats stats() const;
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
