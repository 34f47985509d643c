#include "cuda/kernels/states/delta_prepare.h"

#include <cmath>

#include "cuda/device/gates.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kPrepareThreads = 128;
constexpr int kLaneNumbers = 8;
static_assert(kLargestStateDim == kWarp * kLaneNumbers);

template <class T>
struct Prepare {
  T* qkv;
  const T *b, *a;
  const float *a_log, *dt_bias;
  float* gates;
  int64_t stride, b_stride, a_stride, gates_stride;
  int32_t key_heads, value_heads, key_dim;
  float q_scale;
  bool vectors;
};

/// By a warp: a head of q or of k.
template <class T>
__device__ inline void normalize_head(T* head, int32_t key_dim, float scale, bool vectors) {
  constexpr int kSize = Vector<T>::kSize, kVectors = kLaneNumbers / kSize;
  T* const own = head + lane_id() * kLaneNumbers;
  const bool has_numbers = lane_id() * kLaneNumbers < key_dim;
  Vector<T> held[kVectors];
  float squares = 0.0f;
  if (has_numbers) {
    HEADRACE_UNROLL
    for (int i = 0; i < kLaneNumbers; ++i) {
      if (i % kSize == 0 && vectors) held[i / kSize] = load_vector(own + i);
      if (!vectors) held[i / kSize].at[i % kSize] = own[i];
      const float x = to_float(held[i / kSize].at[i % kSize]);
      squares = fmaf(x, x, squares);
    }
  }
  squares = warp_reduce(squares, Sum{});
  const float factor = scale / sqrtf(squares + 1e-6f);
  if (!has_numbers) return;
  HEADRACE_UNROLL
  for (int i = 0; i < kLaneNumbers; ++i) {
    T& x = held[i / kSize].at[i % kSize];
    x = from_float<T>(to_float(x) * factor);
    if (!vectors) own[i] = x;
    if (i % kSize == kSize - 1 && vectors) store_vector(own + i - (kSize - 1), held[i / kSize]);
  }
}

/// A warp has a head of q or k of one row, or the gates of 32 value heads.
template <class T>
__global__ void __launch_bounds__(kPrepareThreads)
    delta_prepare_kernel(Prepare<T> p, int64_t warps) {
  start_next();
  wait_for_previous();
  const int64_t warp = int64_t{blockIdx.x} * (kPrepareThreads / kWarp) + warp_id();
  if (warp >= warps) return;
  const int32_t norms = 2 * p.key_heads, parts = norms + divide_up(p.value_heads, kWarp);
  const int64_t row = warp / parts;
  const auto part = static_cast<int32_t>(warp % parts);
  if (part < norms) {
    return normalize_head(p.qkv + row * p.stride + int64_t{part} * p.key_dim, p.key_dim,
                          part < p.key_heads ? p.q_scale : 1.0f, p.vectors);
  }
  const int32_t head = (part - norms) * kWarp + lane_id();
  if (head >= p.value_heads) return;
  const float dt = softplus(to_float(p.a[row * p.a_stride + head]) + p.dt_bias[head]);
  float* const to = p.gates + row * p.gates_stride + head;
  to[0] = expf(-expf(p.a_log[head]) * dt);
  to[p.value_heads] = sigmoid_times(1.0f, to_float(p.b[row * p.b_stride + head]));
}

}  // namespace

void delta_prepare(const DeltaPrepareArgs& args, Stream stream) {
  const DeltaSpec& spec = args.spec;
  HEADRACE_CHECK(
      args.qkv.cols == spec.qkv_columns() && args.gates.cols == 2 * int64_t{spec.value_heads},
      args.qkv.cols, " and ", args.gates.cols);
  HEADRACE_CHECK(spec.key_dim % kLaneNumbers == 0 && spec.key_dim <= kLargestStateDim,
                 spec.key_dim);
  const int64_t parts = 2 * int64_t{spec.key_heads} + divide_up(spec.value_heads, kWarp);
  const int64_t warps = args.qkv.rows * parts;
  if (warps == 0) return;
  const LaunchShape shape{.grid = {grid_size(divide_up<int64_t>(warps, kPrepareThreads / kWarp))},
                          .threads = kPrepareThreads,
                          .overlaps = true};
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    auto* const qkv = static_cast<T*>(args.qkv.data);
    const Prepare<T> prepare{.qkv = qkv,
                             .b = static_cast<const T*>(args.b.data),
                             .a = static_cast<const T*>(args.a.data),
                             .a_log = args.a_log,
                             .dt_bias = args.dt_bias,
                             .gates = static_cast<float*>(args.gates.data),
                             .stride = args.qkv.stride,
                             .b_stride = args.b.stride,
                             .a_stride = args.a.stride,
                             .gates_stride = args.gates.stride,
                             .key_heads = spec.key_heads,
                             .value_heads = spec.value_heads,
                             .key_dim = spec.key_dim,
                             .q_scale = 1.0f / std::sqrt(static_cast<float>(spec.key_dim)),
                             .vectors = is_vectorizable(qkv, args.qkv.stride, spec.key_dim)};
    launch("delta_prepare", delta_prepare_kernel<T>, shape, stream, prepare, warps);
  });
}

}  // namespace headrace::cuda
