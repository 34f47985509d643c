#include "cuda/kernels/attention.h"

#include "cuda/kernels/attention_kernels.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMergeThreads = 128;

/// A warp merges the splits of one row, in index order.
template <class T>
__global__ void attention_merge_kernel(AttentionShape shape, const AttentionMerge* merges,
                                       const int32_t* count, const float* partials, T* out,
                                       int64_t out_stride) {
  const int64_t stride = partial_stride(shape.head_dim);
  const int32_t parts = shape.parts();
  const int64_t units = int64_t{shape.num_kv_heads} * parts, pieces = *count * units;
  for (int64_t p = blockIdx.x; p < pieces; p += gridDim.x) {
    const AttentionMerge merge = merges[p / units];
    const AttentionPiece piece{{0, merge.row, merge.num_rows, 0, 0, 0, 0},
                               static_cast<int32_t>(p % units) / parts,
                               static_cast<int32_t>(p % units) % parts};
    for (int m = warp_id(); m < kShortRows; m += kMergeThreads / kWarp) {
      if (!piece.exists(shape, m)) continue;
      T* to = out + (merge.row + piece.token(shape, m)) * out_stride +
              int64_t{piece.head(shape, m)} * shape.head_dim;
      for (int32_t j = lane_id(); j < shape.head_dim; j += kWarp) {
        SoftmaxState state{kNoScore, 0.0f};
        float sum = 0.0f;
        for (int32_t s = 0; s < merge.num_splits; ++s) {
          const float* from = partials +
                              partial_offset(shape, merge.partial + s, piece.kv_head, piece.part) +
                              m * stride;
          const Fold fold = fold_splits(state, {from[shape.head_dim], from[shape.head_dim + 1]});
          sum = fold_sums(fold, sum, from[j]);
          state = fold.state;
        }
        to[j] = from_float<T>(sum / state.total);
      }
    }
  }
}

void merge_splits(const AttentionArgs& args, Stream stream) {
  if (args.merges.expected <= 0) return;
  const LaunchShape shape{
      .grid = {work_grid(args.merges.expected, args.shape, args.multiprocessors, 16)},
      .threads = kMergeThreads};
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    launch("attention_merge", attention_merge_kernel<T>, shape, stream, args.shape,
           args.merges.items, args.merges.count, static_cast<const float*>(args.partials),
           static_cast<T*>(args.out.data), args.out.stride);
  });
}

}  // namespace

size_t attention_partial_bytes(int64_t count, const AttentionShape& shape) {
  return sizeof(float) * static_cast<size_t>(count * shape.num_kv_heads * shape.parts() *
                                             kShortRows * partial_stride(shape.head_dim));
}

void attention(const AttentionArgs& args, Stream stream) {
  const AttentionShape& shape = args.shape;
  HEADRACE_CHECK(shape.num_kv_heads >= 1 && shape.num_heads % shape.num_kv_heads == 0,
                 shape.num_heads, " on ", shape.num_kv_heads);
  HEADRACE_CHECK(args.layout.num_kv_heads == shape.num_kv_heads &&
                     args.layout.head_dim == shape.head_dim && args.layout.block_size >= 1,
                 args.layout.head_dim, " and ", shape.head_dim);
  const bool wgmma = shape.long_rows == kWgmmaRows;
  HEADRACE_CHECK(shape.long_rows == kLongRows ||
                     (wgmma && can_use_mma(args) &&
                      wgmma_can_attend({args.dtype, args.cache_dtype, shape.head_dim,
                                        args.layout.block_size, args.scale})),
                 shape.long_rows);
  if (wgmma) attention_wgmma(args, stream);
  if (can_use_mma(args)) {
    attention_mma(args, stream);
  } else {
    attention_generic(args, stream);
  }
  merge_splits(args, stream);
}

}  // namespace headrace::cuda
