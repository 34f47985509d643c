#pragma once

// Cutting a step's attention into pieces of work. Plain host arithmetic; a step plans once and
// every layer (and every replay of a captured graph) reads the same device copy.
//
// What a piece computes for a row depends on that row alone: keys are visited in tiles of kTileKeys
// anchored at position 0, with an online softmax that starts afresh every kSplitKeys; the splits'
// results are folded in index order, whether one block makes all of them (kLong: many rows) or each
// is made by a block of its own (kShort: one row or a few) and the last block to finish folds.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/step_batch.h"

namespace headrace::cuda {

inline constexpr int32_t kTileKeys = 64;
inline constexpr int32_t kSplitKeys = 256;
inline constexpr int32_t kShortRows = 16;   ///< of (row, head) pairs that a short piece holds
inline constexpr int32_t kLongRows = 64;    ///< the same of a long piece
inline constexpr int32_t kWgmmaRows = 128;  ///< of a long piece for wgmma: attention_long_rows()
inline constexpr int32_t kMaxGroup = 16;    ///< query heads of one KV head that a piece holds

/// Rows of one sequence; all their keys (long), or those of one split (short). Each stands for
/// num_kv_heads * parts() blocks of work.
struct AttentionItem {
  int32_t sequence = 0;  ///< row of the block tables
  int32_t row = 0;       ///< first row of the step
  int32_t num_rows = 0;
  int32_t position = 0;  ///< of the first row
  int32_t num_keys = 0;  ///< of the sequence, this step's included
  int32_t first_split = 0;
  int32_t end_split = 0;
  /// Short: partial result's number, which count up with a sequence's splits; or -1: the only
  /// split, which writes the output itself.
  int32_t partial = -1;
  // Long: its group in the list, whose pieces follow each other head by head.
  int32_t ahead = 0;        ///< items of the group ahead of this one
  int32_t group_items = 1;  ///< 1: all heads of an item follow each other
  int32_t seen = 0;         ///< SightRun's of its rows
};

struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  ///< see AttentionSpec
  int32_t long_rows = kLongRows;
  bool causal = true;    ///< see AttentionSpec
  int32_t blocks = 132;  ///< about as many take long pieces at once; any number gives the same bits

  bool operator==(const AttentionShape&) const = default;
  constexpr int32_t group() const { return num_heads / num_kv_heads; }
  /// A group of more than kMaxGroup heads is cut into equal parts.
  constexpr int32_t parts() const { return (group() + kMaxGroup - 1) / kMaxGroup; }
  constexpr int32_t part_heads() const { return (group() + parts() - 1) / parts(); }
};

/// What a step needs for layers of one shape (layers that differ in their window have each a plan).
struct AttentionPlan {
  std::vector<AttentionItem> short_items;
  std::vector<AttentionItem> long_items;  ///< a group's longest first: piece_at()
  int32_t num_partials = 0;
};

/// First key that the row at `position` sees.
constexpr int32_t first_key(int32_t position, int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

/// Behind the last key that an item's row at `position` sees.
constexpr int32_t end_key(const AttentionItem& item, int32_t position,
                          const AttentionShape& shape) {
  if (shape.causal) return item.seen > position ? item.seen : position + 1;
  return shape.window > 0 && shape.window < item.num_keys - position ? position + shape.window
                                                                     : item.num_keys;
}

/// Tiles of keys that a long item's rows see.
constexpr int32_t tiles_of_item(const AttentionItem& item, const AttentionShape& shape) {
  const int32_t last = item.position + item.num_rows - 1;
  return (end_key(item, last, shape) + kTileKeys - 1) / kTileKeys -
         first_key(item.position, shape.window) / kTileKeys;
}

/// Blocks take a list's pieces (an item for one KV head and part) in rounds: which one of all does
/// `block` take? Every other round goes backwards, so that who had the longest piece of one has the
/// shortest of the next, and all have about the same to do.
constexpr uint32_t piece_of_round(uint32_t round, uint32_t block, uint32_t blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

struct PieceAt {
  uint32_t item;  ///< of the list
  uint32_t unit;  ///< KV head * parts() + part
};

/// Piece `p` of a list. A group's odd units go backwards, for the same reason.
constexpr PieceAt piece_at(const AttentionItem* items, uint32_t p, uint32_t units) {
  const uint32_t i = p / units, first = i - static_cast<uint32_t>(items[i].ahead);
  const auto size = static_cast<uint32_t>(items[i].group_items);
  const uint32_t unit = (p - first * units) / size, place = (p - first * units) % size;
  return {first + (unit % 2 == 0 ? place : size - 1 - place), unit};
}

/// How a step's long pieces are shared out.
struct AttentionBalance {
  double busiest = 0;  ///< tiles of keys of the block that has most, over the mean
  double alone = 0;    ///< share of the tiles that a block reads while no other does
};
AttentionBalance attention_balance(std::span<const AttentionItem> long_items,
                                   const AttentionShape& shape);

/// Fills `plan`, reusing its memory. Few rows over many keys, if they all see the same way, become
/// short pieces as long as there are at most `max_partials` partial results, and long ones behind
/// that: the same bits, but less work at once. Long pieces come in the order that takes the
/// shortest time by attention_balance().
void plan_attention(std::span<const SeqSlice> seqs, const AttentionShape& shape,
                    int64_t max_partials, AttentionPlan* plan);

}  // namespace headrace::cuda
