#pragma once

// Scheduler: decides which tokens the next step computes. It is a pure state machine without
// thread, clock, device or tensor. README.md in this folder is the normative description.
//
// One round: plan(now) -> the engine runs the step -> commit(sampled tokens) or abandon_step().
// plan_ahead(now) begins the next round before the commit. Steps run in the order of their plans.
// add(), cancel() and wish_drafts() may come at any time. Not thread safe: the loop thread owns it.
// An unknown id, or a call out of turn, is a bug of the engine: it throws InternalError and changes
// nothing.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "headrace/options.h"
#include "kv/cache_identity.h"
#include "kv/kv_blocks.h"
#include "kv/kv_groups.h"

namespace headrace {

using SeqId = uint64_t;

inline constexpr int32_t kAlwaysReady = std::numeric_limits<int32_t>::max();
inline constexpr int32_t kNeverAhead = std::numeric_limits<int32_t>::max();

struct SchedulerConfig {
  int32_t max_num_seqs = 64;             ///< sequences that hold blocks, and so sequences in a step
  int32_t max_num_batched_tokens = 512;  ///< rows in a step; >= max_num_seqs
  /// Rows of one prompt per step; 0: only the budget bounds them. An item of whole_items may have
  /// more.
  int32_t max_prefill_chunk = 0;
  /// Of an item of SeqSpec::whole_items, which shares a step with a row of each other sequence: at
  /// most max_num_batched_tokens - (max_num_seqs - 1).
  int32_t most_item_rows = 0;
  int32_t max_model_len = 0;
  int32_t block_size = 64;
  int32_t num_blocks = 0;
  bool enable_prefix_caching = true;
  int32_t num_host_blocks = 0;  ///< places for blocks that leave the prefix cache; 0 = none
  /// KvGroups::windows of the cache; those of 0 first.
  std::vector<int32_t> windows = {0};
  int32_t num_state_slots = 0;       ///< of a model with states, >= max_num_seqs; 0: it has none
  int32_t num_host_state_slots = 0;  ///< places for snapshots that leave the state slots
  /// Positions between snapshots: a multiple of block_size.
  int32_t snapshot_interval = 2048;
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
};

/// What the scheduler needs to know about a request.
struct SeqSpec {
  std::vector<int32_t> prompt;  ///< >= 1 ids
  /// >= 0; prompt + max_tokens <= max_model_len. 0: its rows are computed, and no token is sampled.
  int32_t max_tokens = 1;
  int32_t min_tokens = 0;
  std::vector<int32_t> end_tokens;  ///< EOS (unless ignored) and stop tokens; sorted, unique
  std::vector<std::vector<int32_t>> stop_sequences;
  /// Stop sequences also end it before min_tokens, and may begin in the prompt.
  bool stop_sequences_anywhere = false;
  int32_t priority = 0;           ///< lower first
  double deadline = 0;            ///< clock of plan(now); passed when now >= deadline; 0 = none
  bool read_prefix_cache = true;  ///< false for prompt_logprobs
  /// Everything else that decides keys and values (adapter, media, dynamic RoPE length). Sequences
  /// share blocks only if their identities are equal.
  CacheIdentity identity;
  /// Wants logits for every prompt position. Such a sequence never reads the prefix cache, and
  /// computes its prompt rows again after a preemption.
  bool wants_all_prompt_logits = false;
  /// The ops of a row at this position, or behind it, need no more of the token before than its id,
  /// so plan_ahead() may plan them while that token is being drawn. kNeverAhead, too, where
  /// Scheduler::postpone() may be wanted for a sequence with a state.
  int32_t ahead_from = kNeverAhead;
  /// All rows of its prompt come in one step, and it waits for a step with room for them. Attention
  /// to later tokens needs that. REQUIRES: max_tokens == 0, read_prefix_cache false,
  /// Scheduler::fits_step().
  bool one_step = false;
  /// An item's rows (identity.media) see each other both ways, so that those that are left of it
  /// come in one step. REQUIRES: each item fits one (Scheduler::fits_item).
  bool whole_items = false;
  /// Rows from this position of the prompt on are not ready until set_ready() says so, because
  /// their media must be encoded first.
  int32_t ready_until = kAlwaysReady;
};

/// kPrompt: the prompt is computed, and the sequence generates no token.
enum class SeqEnd : uint8_t { kNone, kStopToken, kStopSequence, kLength, kCancelled, kPrompt };

/// The rows of one sequence in a step.
struct PlannedSeq {
  SeqId id = 0;
  int32_t start_pos = 0;          ///< tokens already computed; the first row's position
  int32_t num_tokens = 0;         ///< rows, >= 1
  int32_t num_prompt_tokens = 0;  ///< of the request, without generated tokens
  /// The next token is drawn from the last row's logits.
  bool samples = false;
  /// Rows for guesses after them, at the next positions: at most as many as wished for. The engine
  /// chooses the guessed tokens, and may use fewer rows.
  int32_t num_drafts = 0;
  /// >= 0: the token of its one row is still being drawn, by the sampling sequence of this index in
  /// the plan before. `tokens` is empty.
  int32_t drawn_by = -1;
  // Valid until the next call of plan_ahead() or commit(), or until the sequence is cancelled:
  std::span<const int32_t> tokens;  ///< [num_tokens] ids
  /// Block tables by group. They cover all rows and drafts, and lack what has been given back.
  std::span<const std::vector<int32_t>> tables;
  /// As SeqSlice has them; of a model without states kZeroState. `state_out` gets the state behind
  /// the last of rows and drafts, and with drafts every row before that has a save. If the engine
  /// computes fewer drafts, its slice ends with an earlier row: then the slot of that row's save is
  /// its state_out, and the saves before that one are its saves.
  int32_t state_in = kZeroState;
  int32_t state_out = kZeroState;
  std::span<const StateSave> saves = {};
};

struct StepPlan {
  std::vector<PlannedSeq> seqs;        ///< in row order: by priority, then by arrival
  std::vector<SeqId> first_scheduled;  ///< enter a step for the first time
  std::vector<SeqId> preempted;        ///< lost their blocks to others; will be computed again
  std::vector<SeqId> expired;          ///< deadline passed: already ended, not part of the step
  std::vector<SeqId> interrupted;      ///< no blocks left: already ended, not part of the step
  int32_t num_rows = 0;                ///< including draft rows
  std::vector<BlockCopy> copies;       ///< must run in this order before a row is computed
  bool empty() const noexcept { return seqs.empty(); }
};

/// What the step did for one sequence.
struct CommittedSeq {
  SeqId id = 0;
  int32_t num_tokens = 0;        ///< sampled tokens that are part of the output
  std::optional<int32_t> token;  ///< the last of these tokens
  /// Other than kNone: the sequence has left the scheduler. kCancelled: it left earlier, by
  /// cancel(), its deadline or the end of the step before.
  SeqEnd end = SeqEnd::kNone;
  int32_t stop_sequence = -1;  ///< with kStopSequence: which of SeqSpec::stop_sequences
};

struct SchedulerStats {
  int32_t waiting = 0, running = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;    ///< held by no sequence, including cached blocks
  int32_t cached_blocks = 0;  ///< held by no sequence, but with a prefix
  /// Prompt tokens found or not found at a sequence's first admission. Sequences that don't read
  /// the cache count in neither.
  uint64_t prefix_hit_tokens = 0, prefix_miss_tokens = 0;
  /// Prompt tokens whose blocks were found then: with states more than prefix_hit_tokens, which end
  /// at a snapshot.
  uint64_t prefix_found_tokens = 0;
  int32_t cached_host_blocks = 0;       ///< host blocks with a prefix
  uint64_t prefix_host_hit_tokens = 0;  ///< the part of prefix_hit_tokens from host blocks
  uint64_t moved_to_host = 0, moved_from_host = 0;  ///< blocks
  /// Slots: all, free ones, and snapshots. The others are live, or for what uncommitted plans save.
  int32_t state_slots = 0, free_state_slots = 0, snapshots = 0;
  int32_t host_snapshots = 0;  ///< in host slots
  /// Snapshots that were published, that have left their slots for others (to a host slot, where
  /// there is one), and that were copied from host slots.
  uint64_t snapshots_written = 0, snapshots_evicted = 0, snapshots_restored = 0;
  uint64_t preemptions = 0, interruptions = 0;
};

/// What the sequences of such a scheduler hold.
KvGroups kv_groups(const SchedulerConfig& config);

class Scheduler {
 public:
  /// REQUIRES: all numbers of the config are positive (max_prefill_chunk, and those of host blocks
  /// and slots, may be 0), num_state_slots is 0 or at least max_num_seqs, and snapshot_interval a
  /// multiple of block_size, if there are slots.
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  /// REQUIRES: fits() is true, and the media fit the prompt.
  SeqId add(SeqSpec spec);
  /// False: prompt + max_tokens don't fit the blocks, even for a sequence alone. (The last token of
  /// a sequence is never computed and needs no room.)
  bool fits(int64_t prompt_tokens, int64_t max_tokens) const;
  /// Whether one step has room for all rows of such a prompt, without other rows.
  bool fits_step(int64_t prompt_tokens) const;
  /// Whether a step always has room for so many rows of the most senior sequence, whatever
  /// max_prefill_chunk is.
  bool fits_item(int64_t rows) const;
  /// Ends a sequence now; false if it has already ended. If it is planned, commit() lists it once
  /// more, as kCancelled, and drops its token. Its blocks may still be written by the current step,
  /// and may be in the next plan, whose step comes later.
  bool cancel(SeqId id);

  /// The next step. It is empty only if every sequence has ended (also those in `expired`), or no
  /// sequence is ready to run. An empty plan needs no commit. REQUIRES: the last plan has been
  /// committed or abandoned.
  StepPlan plan(double now);
  /// The step after the pending plan, planned before its commit: as if each sequence that samples
  /// in the pending plan got one token and continued, unless this is its last token. Empty if a
  /// sequence would have to wait for the commit: its next row is before SeqSpec::ahead_from or not
  /// ready, or it wishes for drafts or has some, or needs places or blocks of others. Then call
  /// plan() after the commit.
  /// Sequences that end meanwhile leave the plan like cancelled ones. REQUIRES: one plan is
  /// pending, and none ahead.
  StepPlan plan_ahead(double now);
  /// From now on, a plan in which the sequence decodes may give it up to `count` draft rows, if no
  /// other sequence can use them. 0: none. REQUIRES: the sequence has not ended.
  void wish_drafts(SeqId id, int32_t count);
  /// From now on, rows before `position` are ready. A preemption resets this to
  /// SeqSpec::ready_until. REQUIRES: the sequence has not ended.
  void set_ready(SeqId id, int32_t position);
  /// What the pending plan samples for the sequence can't be had in time: commit() drops it, and
  /// the last of its rows counts as not computed. It rests until resume(). REQUIRES: it samples in
  /// the pending plan, nothing is planned ahead, and it has no state: that can't be taken back.
  void postpone(SeqId id);
  /// REQUIRES: the sequence has not ended.
  void resume(SeqId id);
  /// The position of a running sequence's next row; nullopt while it waits. REQUIRES: the sequence
  /// has not ended.
  std::optional<int32_t> next_position(SeqId id) const;
  /// Commits the pending plan; the plan ahead becomes pending. `sampled` are the tokens of the
  /// planned sequences with samples == true (also cancelled ones), one sequence after the other.
  /// counts[i] of them belong to the i-th sequence: 1, and 1 for each computed draft that equals
  /// the token sampled before it. Without counts each sequence has one. Tokens after a sequence's
  /// end are dropped. Lists every sequence of the plan, in its order.
  std::vector<CommittedSeq> commit(std::span<const int32_t> sampled,
                                   std::span<const int32_t> counts = {});
  /// The step could not be computed. Ends the sequences of the pending plan and of the plan ahead
  /// (kCancelled), and frees their blocks; nothing that the steps wrote is cached. Lists every
  /// sequence of the plans once, also those cancelled meanwhile. If a plan had copies, it is
  /// unknown which of them were made: the whole cache is cleared, and running sequences without
  /// rows in a plan are preempted.
  std::vector<SeqId> abandon_step();

  bool has_work() const;  ///< some sequence has not ended
  /// Prompt tokens found in the prefix cache at the first admission (0 before). REQUIRES: the
  /// sequence has not ended.
  int32_t cached_prompt_tokens(SeqId id) const;
  /// The part of them from host blocks.
  int32_t host_prompt_tokens(SeqId id) const;
  /// StepBatch::rope_lens: the prompt's length for prompt tokens, position + 1 for generated
  /// tokens. Preemption doesn't change it. REQUIRES: the sequence has not ended.
  int32_t rope_len(SeqId id, int32_t position) const;
  SchedulerStats stats() const;
  /// Forgets every cached block that no sequence holds, every host block, and every snapshot that
  /// no sequence is about to begin with.
  void clear_prefix_cache();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
