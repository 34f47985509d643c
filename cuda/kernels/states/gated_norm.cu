#include "cuda/kernels/states/gated_norm.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/rows/norm_row.cuh"

namespace headrace::cuda {
namespace {

constexpr int kWarpsOfGroups = 4;

template <class T>
struct GatedNorm {
  const T *x, *gate;
  T* out;
  const float* weight;
  int64_t stride, gate_stride, out_stride;
  int64_t group, groups;  ///< numbers of one; those of a row
  int64_t all_groups;     ///< of all rows
  float eps;
  bool shares_weight, silu, gate_first;

  __device__ float open(float by) const { return sigmoid_times(silu ? by : 1.0f, by); }
};

/// What is normalised.
template <int kSize, class T>
__device__ inline Chunk<float, kSize> load_inputs(const GatedNorm<T>& norm, const T* x,
                                                  const T* gate) {
  const Chunk<T, kSize> values = load_chunk<T, kSize>(x);
  Chunk<float, kSize> out;
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) out.at[i] = to_float(values.at[i]);
  if (!norm.gate_first) return out;
  const Chunk<T, kSize> gates = load_chunk<T, kSize>(gate);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) out.at[i] *= norm.open(to_float(gates.at[i]));
  return out;
}

template <int kSize, class T>
__device__ inline void write_chunk(const GatedNorm<T>& norm, const Chunk<float, kSize>& inputs,
                                   float factor, const float* weight, const T* gate, T* to) {
  Chunk<T, kSize> out, gates = {};
  if (!norm.gate_first) gates = load_chunk<T, kSize>(gate);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    float value = inputs.at[i] * factor * weight[i];
    if (!norm.gate_first) value *= norm.open(to_float(gates.at[i]));
    out.at[i] = from_float<T>(value);
  }
  store_chunk(to, out);
}

/// A group of a row has a block, or a warp of one (kByWarps).
template <class T, int kSize, bool kByWarps>
__global__ void __launch_bounds__(kByWarps ? kWarpsOfGroups * kWarp : kMaxNormThreads)
    gated_norm_kernel(GatedNorm<T> norm) {
  __shared__ float partial[kWarp];
  start_next();
  wait_for_previous();
  const int64_t index =
      kByWarps ? int64_t{blockIdx.x} * kWarpsOfGroups + warp_id() : int64_t{blockIdx.x};
  if (index >= norm.all_groups) return;
  const int threads = kByWarps ? kWarp : static_cast<int>(blockDim.x);
  const int thread = kByWarps ? lane_id() : static_cast<int>(threadIdx.x);
  const int64_t row = index / norm.groups, begin = index % norm.groups * norm.group;
  const T* const x = norm.x + row * norm.stride + begin;
  const T* const gate = norm.gate + row * norm.gate_stride + begin;
  const float* const weight = norm.weight + (norm.shares_weight ? 0 : begin);
  T* const to = norm.out + row * norm.out_stride + begin;

  const int64_t first = int64_t{thread} * kSize, step = int64_t{threads} * kSize;
  const int64_t behind = kByWarps ? norm.group : first + kHeldChunks * step;  // a warp holds all
  Chunk<float, kSize> held[kHeldChunks];
  float squares = 0.0f;
  const auto add_squares = [&](const Chunk<float, kSize>& inputs) {
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) squares = fmaf(inputs.at[i], inputs.at[i], squares);
  };
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at >= norm.group) continue;
    held[h] = load_inputs<kSize>(norm, x + at, gate + at);
    add_squares(held[h]);
  }
  for (int64_t at = behind; at < norm.group; at += step) {
    add_squares(load_inputs<kSize>(norm, x + at, gate + at));
  }
  squares = kByWarps ? warp_reduce(squares, Sum{}) : block_reduce(squares, Sum{}, partial);
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(norm.group) + norm.eps);
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at < norm.group) write_chunk(norm, held[h], factor, weight + at, gate + at, to + at);
  }
  for (int64_t at = behind; at < norm.group; at += step) {
    write_chunk(norm, load_inputs<kSize>(norm, x + at, gate + at), factor, weight + at, gate + at,
                to + at);
  }
}

template <int kSize, class T>
void run(const GatedNorm<T>& norm, Stream stream) {
  const unsigned threads = norm_threads(norm.group, kSize);
  if (threads == kWarp) {
    const LaunchShape shape{
        .grid = {grid_size(divide_up<int64_t>(norm.all_groups, kWarpsOfGroups))},
        .threads = kWarpsOfGroups * kWarp,
        .overlaps = true};
    return launch("gated_norm", gated_norm_kernel<T, kSize, true>, shape, stream, norm);
  }
  const LaunchShape shape{
      .grid = {grid_size(norm.all_groups)}, .threads = threads, .overlaps = true};
  launch("gated_norm", gated_norm_kernel<T, kSize, false>, shape, stream, norm);
}

}  // namespace

void gated_norm(const GatedNormArgs& args, Stream stream) {
  const GatedNormSpec& spec = args.spec;
  HEADRACE_CHECK(spec.group > 0 && args.x.cols % spec.group == 0, spec.group, " of ", args.x.cols);
  if (args.x.rows == 0 || args.x.cols == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const GatedNorm<T> norm{.x = static_cast<const T*>(args.x.data),
                            .gate = static_cast<const T*>(args.gate.data),
                            .out = static_cast<T*>(args.out.data),
                            .weight = args.weight,
                            .stride = args.x.stride,
                            .gate_stride = args.gate.stride,
                            .out_stride = args.out.stride,
                            .group = spec.group,
                            .groups = args.x.cols / spec.group,
                            .all_groups = args.x.rows * (args.x.cols / spec.group),
                            .eps = spec.eps,
                            .shares_weight = args.shares_weight,
                            .silu = spec.gate == GatedNormSpec::Gate::kSilu,
                            .gate_first = spec.gate_first};
    const bool vectors = is_vectorizable(norm.x, norm.stride, norm.group) &&
                         is_vectorizable(norm.gate, norm.gate_stride, norm.group) &&
                         is_vectorizable(norm.out, norm.out_stride, norm.group);
    if (vectors) return run<Vector<T>::kSize>(norm, stream);
    run<1>(norm, stream);
  });
}

}  // namespace headrace::cuda
