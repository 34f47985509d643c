#pragma once

// What one engine step computes: the tokens of all scheduled requests, flattened.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/block_tables.h"
#include "backend/contract/sample_op.h"
#include "backend/contract/state_save.h"
#include "tensor/tensor_view.h"

namespace headrace {

class KvCache;

inline constexpr int32_t kNoAdapter = -1;

/// Positions [first, end) of a sequence.
struct PositionRange {
  int32_t first = 0, end = 0;
};

/// The scheduled tokens of one sequence: rows [first_row, first_row + num_rows) of the step,
/// at absolute positions start_pos, start_pos + 1, ...
struct SeqSlice {
  int32_t first_row = 0;
  int32_t num_rows = 0;   ///< >= 1; a decode has 1
  int32_t start_pos = 0;  ///< tokens of this sequence already in the KV cache
  /// They cover at least keys_end() positions.
  BlockTables blocks;
  /// Adapter that all its rows use: its number among those that the decoder is given for the step,
  /// or kNoAdapter. Ops take LoraGroups.
  int32_t adapter = kNoAdapter;
  /// Of a cache with states: the slot that has them as they are before the first row, or
  /// kZeroState, and the one that gets them as they are behind the last row. They may be the same.
  /// What a slice stores to (state_out, saves), no other slice of the step loads or stores.
  int32_t state_in = kZeroState;
  int32_t state_out = kZeroState;  ///< kZeroState: no layer with a state is computed
  /// By ascending row, none of them the last row; slots different from each other and from
  /// state_out and state_in.
  std::span<const StateSave> saves = {};
  /// Pictures' rows that see each other both ways: ascending, disjoint. A row at a position within
  /// one sees the keys up to its end, too, which the cache has after this step (AttentionSpec).
  std::span<const PositionRange> both_ways = {};
};

/// Rows of a slice, one behind the other, that see the same way.
struct SightRun {
  int32_t end = 0;   ///< position behind the last of them
  int32_t seen = 0;  ///< position behind the last key that all of them see; 0: none but by the op
};

/// Those from `position` on. REQUIRES: a position of the slice.
constexpr SightRun sight_at(const SeqSlice& slice, int32_t position) {
  SightRun out{slice.start_pos + slice.num_rows, 0};
  for (const PositionRange& range : slice.both_ways) {
    if (range.end <= position) continue;
    const bool within = range.first <= position;
    if (within) out.seen = range.end;
    const int32_t end = within ? range.end : range.first;
    if (end < out.end) out.end = end;
    break;
  }
  return out;
}

/// Behind the last position that a row of the slice writes or sees, of causal ops.
constexpr int32_t keys_end(const SeqSlice& slice) {
  const int32_t end = slice.start_pos + slice.num_rows;
  const int32_t seen = sight_at(slice, end - 1).seen;
  return seen > end ? seen : end;
}

/// What a row is a part of, which decides the experts that it goes to where there are two groups of
/// them. A generated token is what its id says, like any other.
enum class Modality : uint8_t {
  kText,
  kVision,  ///< an image's or a video's row, or a token that stands beside or points into one
};

/// Rows of a step that stand for no token of the vocabulary: a part of an image.
struct GivenRows {
  int32_t first_row = 0;
  /// [n, H] act, the backend's memory: in place of the table's rows. Of ranks that share a model,
  /// the first one's memory, which the others read, here and below.
  TensorView embeddings;
  /// [n, H] act each, added to the residual behind layer 0, 1, ...; fewer than there are layers.
  std::span<const TensorView> added = {};
};

/// Host memory, owned by the caller and unchanged until sample() or begin_sample() of the step has
/// returned. T rows in all. Sequences are disjoint, in row order, and cover all T rows.
struct StepBatch {
  std::span<const int32_t> token_ids;  ///< [T]
  std::span<const int32_t> positions;  ///< [T] absolute position of each row
  /// [T] sequence length that dynamic RoPE scaling sees for each row (see rope.h); other kinds
  /// of scaling ignore it.
  std::span<const int32_t> rope_lens;
  std::span<const SeqSlice> seqs;
  std::span<const int32_t> logit_rows;  ///< [S] ascending rows whose logits are wanted
  /// Above 0: logits of all rows are wanted, and the ops' tensors have room for so many rows.
  int64_t room = 0;
  /// [T], or empty: none. drawn[i] >= 0: row i's token is not token_ids[i], which is 0, but the one
  /// that the step before drew there, counting from its first begin_sample() on.
  std::span<const int32_t> drawn = {};
  /// Rows that are given: in row order, disjoint. Their token ids are any of the vocabulary.
  std::span<const GivenRows> given = {};
  /// [3][T] what RoPE goes by on each axis (RopeSpec::axes), or empty: `positions` on all three.
  std::span<const int32_t> rope_positions = {};
  /// [T], or empty: all text. For the decoder's blocks: ops don't look at it.
  std::span<const Modality> modalities = {};
  /// [T], or empty: all 0. Which text of a pair a row is of, where a model tells them apart. For
  /// the decoder: ops don't look at it.
  std::span<const int32_t> token_types = {};
  /// [S], or empty: not known yet. What begin_sample() will be called with, the same span, for the
  /// logits of `logit_rows`: a backend may draw as a part of the step then (Backend::draw).
  std::span<const SampleRow> draws = {};
  /// For the decoder: rows behind the final norm are wanted of all rows (Decoder::hidden).
  bool all_hidden = false;
  /// That the sequences' block tables are of; null: no op of the step uses one.
  const KvCache* cache = nullptr;

  std::array<int32_t, 3> rope_position(size_t row) const noexcept {
    if (rope_positions.empty()) return {positions[row], positions[row], positions[row]};
    const size_t rows = token_ids.size();
    return {rope_positions[row], rope_positions[rows + row], rope_positions[2 * rows + row]};
  }
};

}  // namespace headrace
