#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/route/route_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kEach = 4;  // neighbours that a lane takes at once
constexpr int kWarps = 4;

template <class T>
struct LogitsTask {
  const T* x;
  int64_t x_stride, rows, k;
  const float* gate;
  int64_t gate_stride;
  const float* bias;
  float* logits;
  int experts;
  bool vectors;  // a lane's elements of x are aligned
};

template <class T>
struct alignas(sizeof(T) * kEach) Four {
  T at[kEach];
};

/// x[k .. k + 4), zeros behind its end.
template <class T>
__device__ inline void load_four(const LogitsTask<T>& task, const T* row, int64_t k,
                                 float (&to)[kEach]) {
  if (task.vectors && k + kEach <= task.k) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(row + k);
    HEADRACE_UNROLL
    for (int i = 0; i < kEach; ++i) to[i] = to_float(four.at[i]);
    return;
  }
  HEADRACE_UNROLL
  for (int i = 0; i < kEach; ++i) to[i] = k + i < task.k ? to_float(row[k + i]) : 0.0f;
}

/// A warp has kRows rows and kExperts experts; a lane one chain of each of their sums.
template <class T, int kRows, int kExperts>
__global__ void __launch_bounds__(kWarps* kWarp) route_logits_kernel(LogitsTask<T> task) {
  const int first_expert =
      static_cast<int>(blockIdx.x * kWarps + static_cast<unsigned>(warp_id())) * kExperts;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  start_next();
  wait_for_previous();
  if (first_expert >= task.experts) return;
  const T* rows[kRows];
  const float* gates[kExperts];
  HEADRACE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = task.x + least(first_row + r, task.rows - 1) * task.x_stride;
  }
  HEADRACE_UNROLL
  for (int e = 0; e < kExperts; ++e) {
    gates[e] = task.gate + least(first_expert + e, task.experts - 1) * task.gate_stride;
  }
  float sums[kRows][kExperts] = {};
  for (int64_t k = lane_id() * kEach; k < task.k; k += kWarp * kEach) {
    float gate[kExperts][kEach];
    HEADRACE_UNROLL
    for (int e = 0; e < kExperts; ++e) {
      const Vector<float> four = load_vector(gates[e] + k);
      HEADRACE_UNROLL
      for (int i = 0; i < kEach; ++i) gate[e][i] = four.at[i];
    }
    HEADRACE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float x[kEach];
      load_four(task, rows[r], k, x);
      HEADRACE_UNROLL
      for (int e = 0; e < kExperts; ++e) {
        HEADRACE_UNROLL
        for (int i = 0; i < kEach; ++i) sums[r][e] = fmaf(x[i], gate[e][i], sums[r][e]);
      }
    }
  }
  HEADRACE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEADRACE_UNROLL
    for (int e = 0; e < kExperts; ++e) {
      float sum = warp_reduce(sums[r][e], Sum{});
      const int expert = first_expert + e;
      if (lane_id() != 0 || first_row + r >= task.rows || expert >= task.experts) continue;
      if (task.bias != nullptr) sum += task.bias[expert];
      task.logits[(first_row + r) * task.experts + expert] = sum;
    }
  }
}

template <class T, int kRows, int kExperts>
void run(const LogitsTask<T>& task, Stream stream) {
  constexpr int64_t kMaxGridRows = 65535;
  const LaunchShape shape{.grid = {grid_size(divide_up(task.experts, kExperts * kWarps)),
                                   grid_size(divide_up<int64_t>(task.rows, kRows))},
                          .threads = kWarps * kWarp,
                          .overlaps = true};
  HEADRACE_CHECK(shape.grid.y <= kMaxGridRows, task.rows);
  launch("route_logits", route_logits_kernel<T, kRows, kExperts>, shape, stream, task);
}

}  // namespace

void route_logits(const RouteArgs& args, Stream stream) {
  // The rows of a warp share what it loads of the gate; few rows are spread over more warps.
  constexpr int64_t kFewRows = 4;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const auto* x = static_cast<const T*>(args.x.data);
    const LogitsTask<T> task{.x = x,
                             .x_stride = args.x.stride,
                             .rows = args.x.rows,
                             .k = args.x.cols,
                             .gate = args.gate,
                             .gate_stride = args.gate_stride,
                             .bias = args.bias,
                             .logits = args.logits,
                             .experts = args.spec.num_experts,
                             .vectors = is_vectorizable(x, args.x.stride, 0)};
    if (task.rows <= kFewRows) {
      run<T, 1, 1>(task, stream);
    } else {
      run<T, 8, 4>(task, stream);
    }
  });
}

}  // namespace headrace::cuda
