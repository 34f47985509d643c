#pragma once

// What the scan of a row's slices leaves for the block that draws. Slices lie at fixed places of a
// row, so that a row's sums have the same bits whatever runs beside it.

#include "cuda/device/select.cuh"
#include "cuda/kernels/sample/sample.h"

namespace headrace::cuda {

inline constexpr int kSampleThreads = 512;
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

/// A slice's logits behind all edits, not yet divided by the temperature.
struct SliceFound {
  OrderCode best = 0;   ///< 0: all are at -inf
  Amount amount = 0;    ///< of exp((logit - best's) / temperature), if the row needs it
  float floor = 0.0f;   ///< every token from this logit on is listed, if the list is complete
  uint32_t listed = 0;  ///< tokens from `floor` on: beyond kSliceList, the list isn't complete
  bool bad = false;     ///< a logit of the model is NaN or +inf
  bool some = false;    ///< a logit of the model is above -inf
};

/// In SampleArgs::workspace.
struct SliceTable {
  SliceFound* found;  ///< [num_rows][slices]
  OrderCode* lists;   ///< [num_rows][slices][kSliceList], in no order
  int32_t slices;     ///< of a row
};

__host__ __device__ inline int32_t slices_of(int32_t vocab_size) {
  return divide_up(vocab_size, kSliceSize);
}

__host__ __device__ inline SliceTable slice_table(const SampleArgs& args) {
  const int32_t slices = slices_of(args.vocab_size);
  auto* const lists = static_cast<OrderCode*>(args.workspace);
  return {reinterpret_cast<SliceFound*>(lists + args.num_rows * slices * kSliceList), lists,
          slices};
}

/// Does the draw look at more than the best token?
__device__ inline bool draws(const SampleRowArgs& row) {
  return !row.greedy && row.forced_token < 0;
}

/// Does it need the sum of all tokens' weights, where not all of them are listed?
__device__ inline bool needs_total(const SampleRowArgs& row) {
  return draws(row) && row.top_k <= 0 && row.min_p <= 0.0f;
}

}  // namespace headrace::cuda
