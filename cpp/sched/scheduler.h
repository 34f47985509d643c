#pragma once

// Scheduler: which tokens the next step computes. A pure state machine: no thread, clock, device
// or tensor. README.md in this folder is the normative description.
//
// One round: plan(now) -> the engine runs the step -> commit(sampled tokens) or abandon_step().
// plan_ahead(now) begins the next round before the commit. Steps run in the order of their plans.
// add(), cancel() and wish_drafts() may come at any time. Not thread safe: the loop thread owns it.
// An unknown id, or a call out of turn, is our bug: InternalError, and nothing has changed.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/options.h"
#include "kv/cache_identity.h"
#include "kv/kv_blocks.h"

namespace headrace {

using SeqId = uint64_t;

inline constexpr int32_t kAlwaysReady = std::numeric_limits<int32_t>::max();

struct SchedulerConfig {
  int32_t max_num_seqs = 64;             ///< sequences that hold blocks, thus also in a step
  int32_t max_num_batched_tokens = 512;  ///< rows in a step; >= max_num_seqs
  int32_t max_prefill_chunk = 0;  ///< rows of one prompt per step; 0 = no bound but the budget
  int32_t max_model_len = 0;
  int32_t block_size = 64;
  int32_t num_blocks = 0;
  bool enable_prefix_caching = true;
  int32_t num_host_blocks = 0;  ///< where blocks go that the prefix cache gives up; 0 = nowhere
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
};

/// What the scheduler needs to know of a request.
struct SeqSpec {
  std::vector<int32_t> prompt;  ///< >= 1 ids
  /// >= 0; prompt + max_tokens <= max_model_len. 0: its rows are computed and nothing is sampled.
  int32_t max_tokens = 1;
  int32_t min_tokens = 0;
  std::vector<int32_t> end_tokens;  ///< EOS (unless ignored) and stop tokens; sorted, unique
  std::vector<std::vector<int32_t>> stop_sequences;
  /// Stop sequences end it before min_tokens too, and may begin in the prompt.
  bool stop_sequences_anywhere = false;
  int32_t priority = 0;           ///< lower first
  double deadline = 0;            ///< in the clock of plan(now); passed when now >= it; 0 = none
  bool read_prefix_cache = true;  ///< false for prompt_logprobs
  /// What else decides keys and values (adapter, media, dynamic RoPE length): blocks are shared
  /// only where it agrees.
  CacheIdentity identity;
  /// Logits for every prompt position: such a sequence never reads the prefix cache. After a
  /// preemption it computes its prompt rows again.
  bool wants_all_prompt_logits = false;
  /// A step that computes its next token needs nothing but the id of the last: plan_ahead() may
  /// plan it while that is being drawn.
  bool plans_ahead = false;
  /// All rows of its prompt come in one step, and it waits until one has room for them: what
  /// attends to what comes later needs that. REQUIRES: max_tokens == 0, read_prefix_cache false,
  /// Scheduler::fits_step().
  bool one_step = false;
  /// Rows at or behind this position of the prompt are not ready to be computed until set_ready()
  /// says so: those of media that have to be encoded.
  int32_t ready_until = kAlwaysReady;
};

/// kPrompt: its prompt is computed and it generates nothing.
enum class SeqEnd : uint8_t { kNone, kStopToken, kStopSequence, kLength, kCancelled, kPrompt };

/// The rows that one sequence has in a step.
struct PlannedSeq {
  SeqId id = 0;
  int32_t start_pos = 0;          ///< tokens already computed; the first row's position
  int32_t num_tokens = 0;         ///< rows, >= 1
  int32_t num_prompt_tokens = 0;  ///< of the request; what it has generated does not count
  /// The last row's logits give the next token.
  bool samples = false;
  /// Rows behind them, at the next positions, for guesses of the tokens to come: as many as were
  /// wished for, or fewer. The engine chooses the tokens, and may use fewer rows.
  int32_t num_drafts = 0;
  /// >= 0: its one row's token is still to come: what this one of the sequences that sample in the
  /// plan before gets. `tokens` is empty.
  int32_t drawn_by = -1;
  // Valid until the next call of plan_ahead() or commit(), or until the sequence is cancelled:
  std::span<const int32_t> tokens;  ///< [num_tokens] ids
  std::span<const int32_t> blocks;  ///< block table, covers all rows and drafts
};

struct StepPlan {
  std::vector<PlannedSeq> seqs;        ///< in row order: by priority, then by arrival
  std::vector<SeqId> first_scheduled;  ///< entered a step for the first time, with this plan
  std::vector<SeqId> preempted;        ///< lost their blocks to make room; will be recomputed
  std::vector<SeqId> expired;          ///< deadline passed: already ended, not part of the step
  std::vector<SeqId> interrupted;      ///< no blocks left: already ended, not part of the step
  int32_t num_rows = 0;                ///< with those of drafts
  std::vector<BlockCopy> copies;       ///< to be made in this order before a row is computed
  bool empty() const noexcept { return seqs.empty(); }
};

/// What the step did for one sequence.
struct CommittedSeq {
  SeqId id = 0;
  int32_t num_tokens = 0;        ///< of its sampled tokens that are part of the output
  std::optional<int32_t> token;  ///< the last of them
  /// Other than kNone: the sequence has left the scheduler. kCancelled: it had before, by cancel(),
  /// its deadline or the end of the step before.
  SeqEnd end = SeqEnd::kNone;
  int32_t stop_sequence = -1;  ///< with kStopSequence: which of SeqSpec::stop_sequences
};

struct SchedulerStats {
  int32_t waiting = 0, running = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;    ///< held by no sequence; cached ones are among them
  int32_t cached_blocks = 0;  ///< held by no sequence, but hold a prefix
  /// Prompt tokens found or not found when a sequence was first admitted; those that don't read
  /// the cache count in neither.
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0;
  int32_t cached_host_blocks = 0;       ///< host blocks that hold a prefix
  uint64_t prefix_host_hit_tokens = 0;  ///< those of prefix_hit_tokens that were in host blocks
  uint64_t moved_to_host = 0, moved_from_host = 0;  ///< blocks
  uint64_t preemptions = 0, interruptions = 0;
};

class Scheduler {
 public:
  /// REQUIRES: every number of the config is positive (max_prefill_chunk may be 0).
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  /// REQUIRES: fits() is true, and the media fit the prompt.
  SeqId add(SeqSpec spec);
  /// False: even alone, prompt + max_tokens never fit the blocks. (The last token of a sequence
  /// is never computed and needs no room.)
  bool fits(int64_t prompt_tokens, int64_t max_tokens) const;
  /// Whether one step has room for the rows of such a prompt, when it is alone in it.
  bool fits_step(int64_t prompt_tokens) const;
  /// Ends a sequence now; false if it has already ended. commit() lists one that is planned once
  /// more, as kCancelled, and its token is dropped. Its blocks, which are perhaps being written,
  /// may be in the next plan: that step comes later.
  bool cancel(SeqId id);

  /// The next step. Not empty unless every sequence has ended (those in `expired` too), or nobody
  /// is ready who could run; an empty plan needs no commit. REQUIRES: the last plan has been
  /// committed or abandoned.
  StepPlan plan(double now);
  /// The step behind the pending plan, before that is committed: as if each sequence that samples
  /// in it got one token and went on, unless it gets its last. Empty if somebody would have to wait
  /// for the commit: has SeqSpec::plans_ahead false, wishes or has drafts, or needs places or
  /// blocks of others; then call plan() behind the commit. Sequences that end meanwhile leave the
  /// plan as cancelled ones do. REQUIRES: one plan is pending, and none ahead.
  StepPlan plan_ahead(double now);
  /// From now on, a plan in which the sequence decodes may give it up to `count` draft rows, from
  /// what nobody else has a use for. 0: none. REQUIRES: the sequence has not ended.
  void wish_drafts(SeqId id, int32_t count);
  /// From now on, rows before `position` are ready; until the sequence is preempted, which takes it
  /// back to SeqSpec::ready_until. REQUIRES: the sequence has not ended.
  void set_ready(SeqId id, int32_t position);
  /// Where the next row of a running sequence goes; nullopt while it waits. REQUIRES: the sequence
  /// has not ended.
  std::optional<int32_t> next_position(SeqId id) const;
  /// For the pending plan; the one ahead is pending then. `sampled` are the tokens of the planned
  /// sequences with samples == true (cancelled ones too), one after the other. counts[i] of them
  /// belong to the i-th: 1, and 1 for each draft that was computed and is the token sampled before
  /// it. No counts: one each. What lies behind a sequence's end is dropped. Lists every sequence of
  /// the plan, in its order.
  std::vector<CommittedSeq> commit(std::span<const int32_t> sampled,
                                   std::span<const int32_t> counts = {});
  /// The step could not be computed: ends the sequences of the plan, and of the one ahead
  /// (kCancelled), and frees their blocks; what the steps wrote is not cached. Lists every sequence
  /// of the plans once, those cancelled meanwhile too. If a plan had copies, nobody knows which
  /// were made: the whole cache is cleared, and who runs without rows in a plan is preempted.
  std::vector<SeqId> abandon_step();

  bool has_work() const;  ///< some sequence has not ended
  /// Prefix hit when it was first admitted (0 before). REQUIRES: the sequence has not ended.
  int32_t cached_prompt_tokens(SeqId id) const;
  /// Those of them that were in host blocks.
  int32_t host_prompt_tokens(SeqId id) const;
  /// StepBatch::rope_lens: the prompt's length for prompt tokens, position + 1 for generated ones,
  /// whatever preemption did. REQUIRES: the sequence has not ended.
  int32_t rope_len(SeqId id, int32_t position) const;
  SchedulerStats stats() const;
  /// Forgets every cached block that no sequence holds, and every host block.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
