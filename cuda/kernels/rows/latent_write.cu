#include "cuda/kernels/rows/latent_write.h"

#include "cuda/kernels/rows/rope_pairs.cuh"

namespace headrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

template <class T, class Cache>
struct LatentTask {
  const T* q;
  int64_t q_stride;
  const T* kv;
  int64_t kv_stride;
  int32_t num_heads, rank, nope_dim, rope_dim;
  const T* norm;
  float eps;
  const float* table;
  int64_t table_stride;
  bool interleaved;
  KvLayout layout;
  Cache* rows;
  const int64_t* slots;
  T* out;
  int64_t out_stride;

  /// Numbers behind the latent vector in a row.
  __device__ int32_t rest() const { return layout.head_dim - rank; }
};

/// What turns of a head, or of a key, to its place; zeros behind. By a warp.
template <class T, class Cache, class To>
__device__ void turn(const LatentTask<T, Cache>& task, const float* table, const T* from, To* to) {
  const int32_t pairs = task.rope_dim / 2;
  for (int32_t p = lane_id(); p < pairs; p += kWarp) {
    const PairPlace at = pair_place(task.rope_dim, task.interleaved, p);
    const RotatedPair pair = rope_rotate(to_float(from[at.first]), to_float(from[at.second]),
                                         {table[p], table[pairs + p]});
    to[at.first] = from_float<To>(pair.first);
    to[at.second] = from_float<To>(pair.second);
  }
  for (int32_t i = task.rope_dim + lane_id(); i < task.rest(); i += kWarp) {
    to[i] = from_float<To>(0.0f);
  }
}

/// A block takes a row: all threads its latent vector, then its warps the key and the heads in
/// turn.
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads) latent_write_kernel(LatentTask<T, Cache> task) {
  __shared__ float scratch[kWarps];
  const int64_t row = blockIdx.x;
  start_next();
  wait_for_previous();
  const T* const latent = task.kv + row * task.kv_stride;
  Cache* const cached = task.rows + task.layout.offset(task.slots[row], 0);
  const float factor = inverse_rms(latent, task.rank, task.eps, scratch);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < task.rank; i += kThreads) {
    cached[i] = from_float<Cache>(to_float(latent[i]) * factor * to_float(task.norm[i]));
  }
  const float* const table = task.table + row * task.table_stride;
  const int32_t query_dim = task.nope_dim + task.rope_dim;
  for (int32_t h = warp_id(); h <= task.num_heads; h += kWarps) {
    if (h == task.num_heads) {
      turn(task, table, latent + task.rank, cached + task.rank);
    } else {
      turn(task, table, task.q + row * task.q_stride + int64_t{h} * query_dim + task.nope_dim,
           task.out + row * task.out_stride + int64_t{h} * task.layout.head_dim + task.rank);
    }
  }
}

template <class T, class Cache>
void run(const LatentWriteArgs& args, Stream stream) {
  const LatentTask<T, Cache> task{.q = static_cast<const T*>(args.q.data),
                                  .q_stride = args.q.stride,
                                  .kv = static_cast<const T*>(args.kv.data),
                                  .kv_stride = args.kv.stride,
                                  .num_heads = args.num_heads,
                                  .rank = args.rank,
                                  .nope_dim = args.nope_dim,
                                  .rope_dim = args.rope_dim,
                                  .norm = static_cast<const T*>(args.norm),
                                  .eps = args.norm_eps,
                                  .table = args.rope_table,
                                  .table_stride = args.rope_stride,
                                  .interleaved = args.interleaved,
                                  .layout = args.layout,
                                  .rows = static_cast<Cache*>(args.rows),
                                  .slots = args.slots,
                                  .out = static_cast<T*>(args.out.data),
                                  .out_stride = args.out.stride};
  launch("latent_write", latent_write_kernel<T, Cache>,
         {.grid = {grid_size(args.q.rows)}, .threads = kThreads, .overlaps = true}, stream, task);
}

}  // namespace

void latent_write(const LatentWriteArgs& args, Stream stream) {
  HEADRACE_CHECK(args.layout.num_kv_heads == 1 && args.rope_dim % 2 == 0 &&
                     args.rank + args.rope_dim <= args.layout.head_dim,
                 args.rank, " + ", args.rope_dim, " in ", args.layout.head_dim);
  if (args.q.rows == 0) return;
  with_element(args.dtype, [&](auto element) {
    with_element(args.cache_dtype,
                 [&](auto cached) { run<decltype(element), decltype(cached)>(args, stream); });
  });
}

}  // namespace headrace::cuda
