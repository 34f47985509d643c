#pragma once

// Splits that blocks of their own have made, put together by the last of these blocks.

#include "cuda/device/last_block.cuh"
#include "cuda/kernels/attention/attention_kernels.cuh"

namespace headrace::cuda {

/// The piece's splits, from the first that it sees on.
struct SplitRange {
  int32_t first, count;

  __device__ int32_t end() const { return first + count; }
};

__device__ inline SplitRange splits_of(const AttentionPiece& piece, const AttentionShape& shape) {
  const KeyRange seen = keys_of(piece.item, shape);
  const int32_t first = seen.first / kSplitKeys;
  return {first, divide_up(seen.end, kSplitKeys) - first};
}

template <class T, class Cache>
__device__ float* partial_of(const AttentionTask<T, Cache>& task, const AttentionPiece& piece) {
  return task.partials + partial_offset(task.shape, piece.item.partial, piece.kv_head, piece.part);
}

/// By a block that has written the partial results of `made` splits, the piece's and others of the
/// same rows: if they are the last, folds them all in index order and writes the output. `shared`:
/// see is_last_block().
template <class T, class Cache>
__device__ void merge_if_last(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                              int32_t made, uint32_t* shared) {
  const AttentionShape& shape = task.shape;
  const SplitRange splits = splits_of(piece, shape);
  const int32_t unit = piece.kv_head * shape.parts() + piece.part;
  int32_t* counter =
      task.counters + piece.item.sequence * shape.num_kv_heads * shape.parts() + unit;
  if (!is_last_block(counter, made, splits.count, shared)) return;
  const int32_t d = shape.head_dim, columns = d / 4;
  const int32_t rows = piece.item.num_rows * shape.part_heads();
  const int64_t row_stride = partial_stride(d);
  const int64_t split_stride = partial_offset(shape, 1, 0, 0);
  AttentionPiece first = piece;
  first.item.partial -= piece.item.first_split - splits.first;
  const float* const partials = partial_of(task, first);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < rows * columns;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t m = i / columns, column = i % columns * 4;
    if (!piece.exists(shape, m)) continue;
    const float* from = partials + m * row_stride;
    float max = kNoScore;
    float4 sums = {0.0f, 0.0f, 0.0f, 0.0f}, totals = sums;
    HEADRACE_UNROLL_BY_8
    for (int32_t s = 0; s < splits.count; ++s, from += split_stride) {
      const float4 state = load_others(from + d), added = load_others(from + d + 4);
      const float4 more = load_others(from + column);
      const Fold fold(max, state.x);
      max = fold.max;
      totals = {fold(totals.x, added.x), fold(totals.y, added.y), fold(totals.z, added.z),
                fold(totals.w, added.w)};
      sums = {fold(sums.x, more.x), fold(sums.y, more.y), fold(sums.z, more.z),
              fold(sums.w, more.w)};
    }
    const float factor = output_factor(task, piece, m, row_total(totals), max);
    T* out = task.out + (piece.item.row + piece.token(shape, m)) * task.out_stride +
             int64_t{piece.head(shape, m)} * d + column;
    out[0] = from_float<T>(sums.x * factor);
    out[1] = from_float<T>(sums.y * factor);
    out[2] = from_float<T>(sums.z * factor);
    out[3] = from_float<T>(sums.w * factor);
  }
}

}  // namespace headrace::cuda
