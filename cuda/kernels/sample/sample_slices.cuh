#pragma once

// What the scan of a row's slices leaves for the block that draws. Slices lie at fixed places of a
// row, so that a row's sums have the same bits whatever runs beside it.

#include "cuda/device/select.cuh"
#include "cuda/kernels/sample/sample.h"

namespace headrace::cuda {

inline constexpr int kSampleThreads = 512;
/// Of grids whose blocks share slices out: about as many as run at once. Any number gives the same
/// results.
inline constexpr int kSpreadBlocks = 2 * 132, kPickBlocks = 132;
inline constexpr float kNever = -INFINITY;
/// A weight of 1 as an Amount; 2^19 of them fit.
inline constexpr float kAmountUnit = 0x1p44f;
inline constexpr int32_t kMaxVocabulary = 1 << 19;

inline constexpr int kSliceQuads = 4;  // of a thread: 16 bytes each
inline constexpr int kSliceSize = 4 * kSliceQuads * kSampleThreads;
/// Most tokens that a slice lists; usually it lists about 114.
inline constexpr int kSliceList = 256;
/// A slice's list has that many of its first tokens at least (or all, or it is not complete).
inline constexpr uint32_t kSureTokens = 64;
/// Of histograms of amounts.
inline constexpr uint32_t kBins = 2048;
/// Most tokens that a spread draw looks at one by one.
inline constexpr uint32_t kMaxPicked = kBins;

/// A slice's logits behind all edits, not yet divided by the temperature.
struct SliceFound {
  OrderCode best = 0;   ///< 0: all are at -inf
  Amount amount = 0;    ///< of exp((logit - best's) / temperature), if the row needs it
  Amount reported = 0;  ///< the same for what is reported, with its own divisor
  float floor = 0.0f;   ///< every token from this logit on is listed, if the list is complete
  uint32_t listed = 0;  ///< tokens from `floor` on: beyond kSliceList, the list isn't complete
  bool bad = false;     ///< a logit of the model is NaN or +inf
  bool some = false;    ///< a logit of the model is above -inf
};

/// A draw that the lists don't decide, which is spread over many blocks: a slice each, twice. First
/// they add up exact amounts in bins by distance from the best token; then they pick the tokens of
/// those few bins in which the draw may end.
struct SpreadDraw {
  float max = 0.0f;                       ///< the row's largest value
  float bins_each = 0.0f;                 ///< bins of a distance of 1; a power of two
  int32_t added = 0, looked_through = 0;  ///< slices
  uint32_t num_picked = 0;                ///< beyond kMaxPicked, not all of them are there
  uint32_t num_ahead = 0;                 ///< of these, in bins up to `end`
  // By the block that adds the last slice. With top_p the draw's bin isn't sure before the last
  // token that top_p keeps is: [begin, end], and the one with that token.
  uint32_t begin = 0, end = 0, kept_end = 0;
  Amount before = 0;  ///< amount in the bins ahead of `begin`
  Amount gap = 0;     ///< amount in the bins between `end` and `kept_end`
  Amount total = 0;
};

/// In SampleArgs::workspace.
struct SliceTable {
  SliceFound* found;  ///< [num_rows][slices]
  OrderCode* lists;   ///< [num_rows][slices][kSliceList], in no order
  // Of spread draws:
  SpreadDraw* spread;    ///< [num_rows]
  Amount* bins;          ///< [num_rows][kBins]
  OrderCode* picked;     ///< [num_rows][kMaxPicked], in no order
  int32_t* spread_rows;  ///< [num_spread] which rows these are, in no order
  int32_t* num_spread;
  int32_t slices;  ///< of a row
};

__host__ __device__ inline int32_t slices_of(int32_t vocab_size) {
  return divide_up(vocab_size, kSliceSize);
}

inline size_t slice_table_bytes(int64_t num_rows, int32_t slices) {
  const size_t each =
      static_cast<size_t>(slices) * (sizeof(SliceFound) + kSliceList * sizeof(OrderCode)) +
      sizeof(SpreadDraw) + kBins * sizeof(Amount) + kMaxPicked * sizeof(OrderCode) +
      sizeof(int32_t);
  return static_cast<size_t>(num_rows) * each + sizeof(int32_t);
}

inline SliceTable slice_table(const SampleArgs& args) {
  const int32_t slices = slices_of(args.vocab_size);
  auto* const lists = static_cast<OrderCode*>(args.workspace);
  OrderCode* const picked = lists + args.num_rows * slices * kSliceList;
  Amount* const bins = picked + args.num_rows * kMaxPicked;
  auto* const found = reinterpret_cast<SliceFound*>(bins + args.num_rows * kBins);
  auto* const spread = reinterpret_cast<SpreadDraw*>(found + args.num_rows * slices);
  auto* const spread_rows = reinterpret_cast<int32_t*>(spread + args.num_rows);
  return {found, lists, spread, bins, picked, spread_rows, spread_rows + args.num_rows, slices};
}

/// What the kernels take. Places are worked out on the host, so that no registers hold them.
struct SampleWork : SampleArgs {
  SliceTable table;
};

}  // namespace headrace::cuda
