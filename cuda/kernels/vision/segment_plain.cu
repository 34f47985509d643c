#include "cuda/kernels/attention/attention_scalar.cuh"
#include "cuda/kernels/vision/segment_task.cuh"

// One row after the other.

namespace headrace::cuda {
namespace {

constexpr int kRowsPerBlock = 4;
constexpr int kMaxHeadDim = 128;

template <class T>
__device__ void attend_row(const SegmentTask<T>& task, const SegmentItem& item, int64_t row,
                           int64_t column, float* query, float* scores, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t d = task.head_dim;
  if (thread < d) query[thread] = to_float(task.q[row * task.q_stride + column + thread]);
  __syncthreads();
  RowSums sums;
  attend_keys(
      query, d, task.scale, SoftCap{}, {0, item.end_key - item.first_key},
      [&](int32_t key) { return task.k + (item.first_key + key) * task.k_stride + column; },
      [&](int32_t key) { return task.v + (item.first_key + key) * task.v_stride + column; }, sums,
      scores, scratch);
  if (thread < d) {
    task.out[row * task.out_stride + column + thread] = from_float<T>(sums.at[0] / sums.total);
  }
}

/// Some rows of an item, and a head.
template <class T>
__global__ void __launch_bounds__(kScalarThreads, 4) segment_plain_kernel(SegmentTask<T> task) {
  __shared__ float query[kMaxHeadDim];
  __shared__ float scores[kTileKeys];
  __shared__ float scratch[kScalarThreads / kWarp];
  start_next();
  wait_for_previous();
  const SegmentItem item = task.items[blockIdx.x];
  const ItemRows own = rows_of(task, item);
  const int32_t first = static_cast<int32_t>(blockIdx.z) * kRowsPerBlock;
  const int32_t end = least(first + kRowsPerBlock, own.count);
  for (int32_t m = first; m < end; ++m) {
    attend_row(task, item, own.first + m, int64_t{blockIdx.y} * task.head_dim, query, scores,
               scratch);
  }
}

}  // namespace

void segment_attention_plain(const SegmentAttentionArgs& args, Stream stream) {
  static_assert(kMaxHeadDim <= kScalarThreads);
  const LaunchShape shape{
      .grid = {grid_size(args.num_items), grid_size(args.heads), kSegmentRows / kRowsPerBlock},
      .threads = kScalarThreads,
      .overlaps = true};
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    launch("segment_attention_plain", segment_plain_kernel<T>, shape, stream,
           segment_task<T>(args));
  });
}

}  // namespace headrace::cuda
