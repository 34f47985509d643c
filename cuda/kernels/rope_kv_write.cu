#include "cuda/kernels/rope_kv_write.h"

#include "cuda/device/reduce.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kMaxPairs = kMaxHeadDim / 2 / kWarp;  // of elements, that a lane holds
constexpr int kWarps = 4;

struct HeadTask {
  int32_t head_dim;
  int32_t rotary_dim;
  bool interleaved;
  float eps;
};

/// Elements that lane pair `p` of a head are: rotated pairs first, then the rest side by side.
struct PairPlace {
  int32_t first, second;
};

__device__ inline PairPlace pair_place(const HeadTask& task, int32_t p) {
  const int32_t pairs = task.rotary_dim / 2;
  if (p < pairs && !task.interleaved) return {p, p + pairs};
  return {2 * p, 2 * p + 1};
}

/// Normalises and rotates one head, a warp's work, and gives each pair to store(place, values).
template <class T, class Store>
__device__ void prepare_head(const T* x, const T* norm, const float* table, const HeadTask& task,
                             const Store& store) {
  const int32_t pairs = task.head_dim / 2;
  float first[kMaxPairs] = {}, second[kMaxPairs] = {};
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int i = 0; i < kMaxPairs; ++i) {
    const int32_t p = lane_id() + i * kWarp;
    if (p >= pairs) continue;
    const PairPlace at = pair_place(task, p);
    first[i] = to_float(x[at.first]);
    second[i] = to_float(x[at.second]);
    squares = fmaf(first[i], first[i], squares);
    squares = fmaf(second[i], second[i], squares);
  }
  float factor = 1.0f;
  if (norm != nullptr) {
    squares = warp_reduce(squares, Sum{});
    factor = 1.0f / sqrtf(squares / static_cast<float>(task.head_dim) + task.eps);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < kMaxPairs; ++i) {
    const int32_t p = lane_id() + i * kWarp;
    if (p >= pairs) continue;
    const PairPlace at = pair_place(task, p);
    RotatedPair pair{first[i], second[i]};
    if (norm != nullptr) {
      pair.first = pair.first * factor * to_float(norm[at.first]);
      pair.second = pair.second * factor * to_float(norm[at.second]);
    }
    const int32_t rotated = task.rotary_dim / 2;
    if (p < rotated) pair = rope_rotate(pair.first, pair.second, {table[p], table[rotated + p]});
    store(at, pair);
  }
}

template <class T, class Cache>
struct WriteTask {
  T* qkv;
  int64_t stride;
  int32_t num_heads;
  HeadTask head;
  const T* q_norm;
  const T* k_norm;
  const float* table;
  int64_t table_stride;
  KvLayout layout;
  Cache* keys;
  Cache* values;
  const int64_t* slots;
};

/// A block takes a row; its warps take q heads, k heads and v heads in turn.
template <class T, class Cache>
__global__ void rope_kv_write_kernel(WriteTask<T, Cache> task) {
  const int64_t row = blockIdx.x;
  const int32_t d = task.head.head_dim;
  const int32_t kv = task.layout.num_kv_heads;
  const int64_t slot = task.slots[row];
  const float* table = task.table + row * task.table_stride;
  T* const x = task.qkv + row * task.stride;
  for (int32_t h = warp_id(); h < task.num_heads + 2 * kv; h += kWarps) {
    T* head = x + int64_t{h} * d;
    if (h < task.num_heads) {
      prepare_head(head, task.q_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        head[at.first] = from_float<T>(pair.first);
        head[at.second] = from_float<T>(pair.second);
      });
    } else if (h < task.num_heads + kv) {
      Cache* to = task.keys + task.layout.offset(slot, h - task.num_heads);
      prepare_head(head, task.k_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        to[at.first] = from_float<Cache>(pair.first);
        to[at.second] = from_float<Cache>(pair.second);
      });
    } else {
      Cache* to = task.values + task.layout.offset(slot, h - task.num_heads - kv);
      for (int32_t i = lane_id(); i < d; i += kWarp) to[i] = from_float<Cache>(to_float(head[i]));
    }
  }
}

template <class T, class Cache>
void run(const RopeKvWriteArgs& args, Stream stream) {
  const WriteTask<T, Cache> task{
      .qkv = static_cast<T*>(args.qkv.data),
      .stride = args.qkv.stride,
      .num_heads = args.num_heads,
      .head = {args.layout.head_dim, args.rotary_dim, args.interleaved, args.norm_eps},
      .q_norm = static_cast<const T*>(args.q_norm),
      .k_norm = static_cast<const T*>(args.k_norm),
      .table = args.rope_table,
      .table_stride = args.rope_stride,
      .layout = args.layout,
      .keys = static_cast<Cache*>(args.keys),
      .values = static_cast<Cache*>(args.values),
      .slots = args.slots};
  const LaunchShape shape{.grid = {grid_size(args.qkv.rows)}, .threads = kWarps * kWarp};
  launch("rope_kv_write", rope_kv_write_kernel<T, Cache>, shape, stream, task);
}

}  // namespace

void rope_kv_write(const RopeKvWriteArgs& args, Stream stream) {
  const int32_t d = args.layout.head_dim;
  HEADRACE_CHECK(d >= 2 && d % 2 == 0 && d <= kMaxHeadDim, d);
  HEADRACE_CHECK(args.rotary_dim >= 0 && args.rotary_dim % 2 == 0 && args.rotary_dim <= d,
                 args.rotary_dim);
  if (args.qkv.rows == 0) return;
  with_element(args.dtype, [&](auto element) {
    with_element(args.cache_dtype,
                 [&](auto cached) { run<decltype(element), decltype(cached)>(args, stream); });
  });
}

}  // namespace headrace::cuda
