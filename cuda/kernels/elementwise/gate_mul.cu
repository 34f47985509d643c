#include "cuda/kernels/elementwise/gate_mul.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

template <class T, class Gate>
__global__ void gate_mul_kernel(const T* gate_up, int64_t stride, int64_t cols, T* out,
                                int64_t out_stride, bool vectors, Gate gate_of) {
  start_next();
  wait_for_previous();
  const T* gate = gate_up + blockIdx.y * stride;
  const T* up = gate + cols;
  T* to = out + blockIdx.y * out_stride;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  if (!vectors) {
    for (int64_t i = first; i < cols; i += step) {
      to[i] = from_float<T>(gate_of(to_float(gate[i]), to_float(up[i])));
    }
    return;
  }
  constexpr int kSize = Vector<T>::kSize;
  for (int64_t i = first; i < cols / kSize; i += step) {
    Vector<T> value = load_vector(gate + i * kSize);
    const Vector<T> other = load_vector(up + i * kSize);
    HEADRACE_UNROLL
    for (int j = 0; j < kSize; ++j) {
      value.at[j] = from_float<T>(gate_of(to_float(value.at[j]), to_float(other.at[j])));
    }
    store_vector(to + i * kSize, value);
  }
}

template <class Gate>
void run(const GateMulArgs& args, const Gate& gate, Stream stream) {
  const int64_t rows = args.out.rows, cols = args.out.cols;
  constexpr int64_t kMaxGridRows = 65535;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr unsigned kThreads = 128;
    const auto* x = static_cast<const T*>(args.gate_up.data);
    auto* to = static_cast<T*>(args.out.data);
    const bool vectors =
        is_vectorizable(x, args.gate_up.stride, cols) && is_vectorizable(to, args.out.stride, cols);
    const int64_t work = vectors ? cols / Vector<T>::kSize : cols;
    for (int64_t row = 0; row < rows; row += kMaxGridRows) {
      const LaunchShape shape{.grid = {grid_size(divide_up<int64_t>(work, kThreads)),
                                       grid_size(least(rows - row, kMaxGridRows))},
                              .threads = kThreads,
                              .overlaps = true};
      launch("gate_mul", gate_mul_kernel<T, Gate>, shape, stream, x + row * args.gate_up.stride,
             args.gate_up.stride, cols, to + row * args.out.stride, args.out.stride, vectors, gate);
    }
  });
}

}  // namespace

void gate_mul(const GateMulArgs& args, Stream stream) {
  if (args.out.rows == 0 || args.out.cols == 0) return;
  HEADRACE_CHECK(args.gate_up.cols == 2 * args.out.cols, args.gate_up.cols, " for ", args.out.cols);
  const GateSpec& gate = args.gate;
  if (gate.limit > 0.0f) return run(args, ClampedGate{gate.limit, gate.alpha}, stream);
  if (gate.activation == Activation::kGeluTanh) return run(args, GeluTanhGate{}, stream);
  if (gate.activation == Activation::kGeluErf) return run(args, GeluErfGate{}, stream);
  if (gate.factor != 1.0f) return run(args, ScaledSiluGate{gate.factor}, stream);
  run(args, SiluGate{}, stream);
}

}  // namespace headrace::cuda
