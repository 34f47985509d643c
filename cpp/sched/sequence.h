#pragma once

// Sequence: the scheduler's record of a request, and when its output ends.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/scheduler.h"

namespace headrace {

struct Sequence {
  Sequence(SeqId id, SeqSpec spec, int32_t block_size);

  const SeqId id;
  SeqSpec spec;  ///< its prompt has moved to `tokens`
  const int32_t num_prompt;
  const int32_t block_size;

  std::vector<int32_t> tokens;  ///< prompt, then output
  /// Covers `computed` and the planned rows. The first `published` blocks are in the prefix index,
  /// the others are private.
  std::vector<int32_t> blocks;
  int32_t computed = 0;   ///< tokens whose keys and values are in the blocks, committed
  int32_t published = 0;  ///< blocks
  int32_t in_flight = 0;  ///< rows behind them in plans that are not committed, without drafts
  int32_t to_come = 0;    ///< tokens that those rows will give, beside guessed ones: 0 to 2
  int32_t draw = 0;       ///< its place among those that sample in its last plan
  int32_t wished_drafts = 0;
  int32_t cached_prompt_tokens = 0;
  int32_t host_prompt_tokens = 0;  ///< those of them that were in host blocks
  bool scheduled_before = false;
  int32_t ready_until = 0;  ///< SeqSpec's, or what the engine has set

  int32_t num_tokens() const noexcept { return static_cast<int32_t>(tokens.size()); }
  int32_t num_blocks() const noexcept { return static_cast<int32_t>(blocks.size()); }
  /// Where its next row goes.
  int32_t next_position() const noexcept { return computed + in_flight; }
  /// Its tokens, with those to come.
  int32_t length() const noexcept { return num_tokens() + to_come; }
  /// Rows that are still to be planned: >= 1, because the last token's logits are always still to
  /// come, unless what is in flight gives its last token. One that generates nothing has its
  /// prompt's alone.
  int32_t remaining() const noexcept {
    const bool has_last = generates() && length() == num_prompt + spec.max_tokens;
    return has_last ? 0 : length() - next_position();
  }
  /// Its next row is not ready: it rests.
  bool is_held_up() const noexcept { return next_position() >= ready_until; }
  bool generates() const noexcept { return spec.max_tokens > 0; }
  bool decodes() const noexcept { return remaining() == 1; }
  /// Whether a step that computes its rows needs nothing that depends on its last token.
  bool plans_ahead() const noexcept { return spec.plans_ahead && wished_drafts == 0; }
  /// Guesses that it may compute behind its known tokens.
  int32_t max_drafts() const noexcept {
    return std::min(wished_drafts, num_prompt + spec.max_tokens - 1 - num_tokens());
  }
  /// Its next row needs one block more.
  bool lacks_block() const noexcept { return next_position() == num_blocks() * block_size; }
  bool reads_cache() const noexcept {
    return spec.read_prefix_cache && !spec.wants_all_prompt_logits;
  }

  /// Blocks for its known tokens and one block of tokens more, as far as it may still grow: what
  /// an admission should leave it.
  int32_t blocks_ahead() const noexcept;
  struct Ending {
    SeqEnd end = SeqEnd::kNone;
    int32_t stop_sequence = -1;  ///< which one
  };
  /// Whether the last of `tokens`, just generated, ends it.
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
