#include "cuda/kernels/rows/lora.h"

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxRank = 8192;  // a scratch row's piece fits into shared memory

struct LoraTask {
  const LoraPartArgs* parts;
  const LoraRowArgs* rows;
  float* scratch;
  int64_t scratch_stride;
};

/// scratch = A x: a block takes a row and a part, its warps the ranks in turn; a lane's elements
/// lie 32 apart, the lanes' sums are added by a tree.
template <class T, class Storage>
__global__ void lora_shrink_kernel(LoraTask task, const T* x, int64_t x_stride, int64_t k) {
  start_next();
  wait_for_previous();
  const LoraRowArgs row = task.rows[blockIdx.x];
  if (static_cast<int32_t>(blockIdx.y) >= row.num_parts) return;
  const LoraPartArgs part = task.parts[row.first_part + static_cast<int32_t>(blockIdx.y)];
  const T* from = x + row.row * x_stride;
  float* to = task.scratch + blockIdx.x * task.scratch_stride + part.scratch_column;
  for (int32_t r = warp_id(); r < part.rank; r += kThreads / kWarp) {
    const auto* a = static_cast<const Storage*>(part.a) + r * k;
    float sum = 0.0f;
    HEADRACE_UNROLL
    for (int64_t i = lane_id(); i < k; i += kWarp)
      sum = fmaf(to_float(from[i]), to_float(a[i]), sum);
    sum = warp_reduce(sum, Sum{});
    if (lane_id() == 0) to[r] = sum;
  }
}

/// out += scale * (B scratch): a thread takes a column, and its ranks in ascending order.
template <class T, class Storage>
__global__ void lora_expand_kernel(LoraTask task, T* out, int64_t out_stride) {
  start_next();
  wait_for_previous();
  auto* held = reinterpret_cast<float*>(shared_memory());
  const LoraRowArgs row = task.rows[blockIdx.x];
  if (static_cast<int32_t>(blockIdx.y) >= row.num_parts) return;
  const LoraPartArgs part = task.parts[row.first_part + static_cast<int32_t>(blockIdx.y)];
  const auto column = static_cast<int32_t>(blockIdx.z * kThreads + threadIdx.x);
  if (static_cast<int32_t>(blockIdx.z * kThreads) >= part.cols) return;
  const float* from = task.scratch + blockIdx.x * task.scratch_stride + part.scratch_column;
  for (int32_t r = static_cast<int32_t>(threadIdx.x); r < part.rank; r += kThreads)
    held[r] = from[r];
  __syncthreads();
  if (column >= part.cols) return;
  const auto* b = static_cast<const Storage*>(part.b) + int64_t{column} * part.rank;
  float sum = 0.0f;
  for (int32_t r = 0; r < part.rank; ++r) sum = fmaf(held[r], to_float(b[r]), sum);
  T& to = out[row.row * out_stride + part.column + column];
  to = from_float<T>(to_float(to) + part.scale * sum);
}

}  // namespace

void lora(const LoraArgs& args, Stream stream) {
  if (args.num_rows == 0 || args.max_parts == 0) return;
  HEADRACE_CHECK(args.num_rows <= args.scratch.rows && args.max_parts <= 65535, args.num_rows,
                 " of ", args.scratch.rows);
  HEADRACE_CHECK(args.max_rank >= 1 && args.max_rank <= kMaxRank, args.max_rank);
  const LoraTask task{args.parts, args.rows, static_cast<float*>(args.scratch.data),
                      args.scratch.stride};
  const unsigned rows = grid_size(args.num_rows), parts = grid_size(args.max_parts);
  const unsigned columns = grid_size(divide_up<int64_t>(args.max_cols, kThreads));
  with_element(args.dtype, [&](auto element) {
    with_element(args.storage, [&](auto stored) {
      using T = decltype(element);
      using Storage = decltype(stored);
      launch("lora_shrink", lora_shrink_kernel<T, Storage>,
             {.grid = {rows, parts}, .threads = kThreads, .overlaps = true}, stream, task,
             static_cast<const T*>(args.x.data), args.x.stride, args.x.cols);
      launch("lora_expand", lora_expand_kernel<T, Storage>,
             {.grid = {rows, parts, columns},
              .threads = kThreads,
              .shared_bytes = sizeof(float) * static_cast<size_t>(args.max_rank),
              .overlaps = true},
             stream, task, static_cast<T*>(args.out.data), args.out.stride);
    });
  });
}

}  // namespace headrace::cuda
