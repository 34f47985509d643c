#pragma once

// Sequence: the scheduler's record of a request. It also decides when the output ends.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {

struct Sequence {
  /// `groups` and `config` outlive it.
  Sequence(SeqId id, SeqSpec spec, const KvGroups& groups, const SchedulerConfig& config);

  const SeqId id;
  SeqSpec spec;  ///< without its prompt, which has moved to `tokens`
  const int32_t num_prompt;
  const KvGroups& groups;
  const int32_t block_size;
  const bool has_state;
  const int32_t snapshot_interval;

  std::vector<int32_t> tokens;  ///< prompt, then output
  /// The block tables; cover `computed` and the planned rows. The first `published` columns are in
  /// the prefix index, the other blocks are private.
  KvTables blocks;
  int32_t computed = 0;   ///< tokens whose keys and values are in the blocks, committed
  int32_t published = 0;  ///< columns
  int32_t in_flight = 0;  ///< rows after them in uncommitted plans, without drafts
  int32_t to_come = 0;    ///< tokens that these rows will give, without guesses: 0 to 2
  int32_t draw = 0;       ///< its index among the sampling sequences of its last plan
  int32_t wished_drafts = 0;
  int32_t cached_prompt_tokens = 0;
  int32_t host_prompt_tokens = 0;  ///< the part of them from host blocks
  bool scheduled_before = false;
  int32_t ready_until = 0;  ///< SeqSpec's, or the engine's later value
  bool postponed = false;   ///< Scheduler::postpone
  /// The slots that it holds while it runs, if it has a state: its own, and the snapshot that has
  /// the state before its next row, if that isn't in its own.
  int32_t live = StateSlots::kNone, source = StateSlots::kNone;
  /// Where cached blocks have continued beyond the snapshot that it has begun with; 0: nowhere.
  int32_t branch = 0;

  int32_t num_tokens() const noexcept { return static_cast<int32_t>(tokens.size()); }
  int32_t num_columns() const noexcept { return blocks.columns(); }
  /// Positions that the columns have.
  int32_t covered() const noexcept { return num_columns() * block_size; }
  /// The position of its next row.
  int32_t next_position() const noexcept { return computed + in_flight; }
  /// The number of its tokens, including those that are being drawn.
  int32_t length() const noexcept { return num_tokens() + to_come; }
  /// Rows that are not planned yet. This is >= 1, because the last token's logits are always
  /// missing, unless the rows in flight give its last token. A sequence that generates no token has
  /// only its prompt's rows.
  int32_t remaining() const noexcept {
    const bool has_last = generates() && length() == num_prompt + spec.max_tokens;
    return has_last ? 0 : length() - next_position();
  }
  /// Behind the fewest rows that a step can have of it: one, or what is left of a whole item.
  int32_t least_end() const noexcept;
  /// The last position from its next row up to `end` that cuts no whole item.
  int32_t uncut_end(int32_t end) const noexcept;
  /// Its next rows are not ready: it rests.
  bool is_held_up() const noexcept { return least_end() > ready_until; }
  bool rests() const noexcept { return postponed || is_held_up(); }
  bool generates() const noexcept { return spec.max_tokens > 0; }
  bool decodes() const noexcept { return remaining() == 1; }
  /// Whether a step with its next rows needs nothing that depends on its last token.
  bool plans_ahead() const noexcept {
    return next_position() >= spec.ahead_from && !is_held_up() && wished_drafts == 0;
  }
  /// Guesses that it may compute after its known tokens.
  int32_t max_drafts() const noexcept {
    return std::min(wished_drafts, num_prompt + spec.max_tokens - 1 - num_tokens());
  }
  /// Columns that the fewest next rows need beside those that it has.
  int32_t lacking_columns() const noexcept;
  bool reads_cache() const noexcept {
    return spec.read_prefix_cache && !spec.wants_all_prompt_logits;
  }

  /// Columns for its known tokens and one more column, if it may still grow that far.
  int32_t columns_ahead() const noexcept;
  /// Blocks that it is about to use beyond those that it holds, when it has `computed_tokens`, and
  /// `taken` more columns. An admission should have that many.
  int32_t blocks_wanted(int32_t computed_tokens, int32_t taken = 0) const noexcept;
  /// The slot with the state before its next row.
  int32_t state_in() const noexcept {
    if (next_position() == 0) return kZeroState;
    return source != StateSlots::kNone ? source : live;
  }
  /// The last position up to `end` behind which its state should become a snapshot; 0: none.
  int32_t last_snapshot(int32_t end) const noexcept;
  struct Ending {
    SeqEnd end = SeqEnd::kNone;
    int32_t stop_sequence = -1;  ///< which one
  };
  /// How the last of `tokens`, just generated, ends the sequence, if it does.
  Ending end_after_last_token() const;

 private:
  /// The first stop sequence that the tokens end in; -1: none.
  int32_t ending_sequence(int32_t output_count) const;
};

/// Scheduling order: priority, then arrival. `a` is senior to `b`.
inline bool is_senior(const Sequence& a, const Sequence& b) noexcept {
  return a.spec.priority != b.spec.priority ? a.spec.priority < b.spec.priority : a.id < b.id;
}

struct SeniorFirst {
  bool operator()(const Sequence* a, const Sequence* b) const noexcept { return is_senior(*a, *b); }
};

}  // namespace headrace
