#pragma once

// From a tile's sums in shared memory to the output: bias, residual, gate and up, rounding.

#include "cuda/device/silu.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear.h"

namespace headrace::cuda {

template <class T, class Out>
struct LinearOutput {
  const T* bias;      // [n] or null
  const T* residual;  // [T, columns of out] or null
  int64_t residual_stride;
  Out* out;
  int64_t out_stride;
  int64_t n;
  bool gate_up, silu_mul;

  /// Gates of a gate_up weight, else n.
  __device__ int64_t width() const { return gate_up ? n / 2 : n; }

  __device__ float with_bias(float sum, int64_t feature) const {
    return bias == nullptr ? sum : sum + to_float(bias[feature]);
  }
  __device__ void store(int64_t row, int64_t column, float value) const {
    if (residual != nullptr) {
      value = to_float(from_float<Out>(value)) + to_float(residual[row * residual_stride + column]);
    }
    out[row * out_stride + column] = from_float<Out>(value);
  }
  __device__ void store_feature(int64_t row, int64_t feature, float sum) const {
    store(row, feature, with_bias(sum, feature));
  }
  __device__ void store_gated(int64_t row, int64_t column, float gate, float up) const {
    const T g = from_float<T>(with_bias(gate, column));
    const T u = from_float<T>(with_bias(up, width() + column));
    store(row, column, silu_mul_of(to_float(g), to_float(u)));
  }
};

template <class T, class Out>
LinearOutput<T, Out> linear_output(const LinearArgs& args) {
  return {static_cast<const T*>(args.bias),
          static_cast<const T*>(args.residual.data),
          args.residual.stride,
          static_cast<Out*>(args.out.data),
          args.out.stride,
          args.layout.n,
          args.layout.gate_up,
          args.silu_mul};
}

/// A block's sums: `slices` partial ones to be added in order.
struct TileSums {
  const float* sums;     ///< [slices][rows][features], rows `row_stride` apart
  int64_t slice_stride;  ///< in floats, as is row_stride
  int64_t row_stride;
  int slices;
  int features;           ///< a multiple of 16
  int64_t first_feature;  ///< as stored, a multiple of 16
  int64_t first_row;
  int rows;

  __device__ float sum(int row, int feature) const {
    const float* from = sums + row * row_stride + feature;
    float total = from[0];
    for (int s = 1; s < slices; ++s) total += from[s * slice_stride];
    return total;
  }
};

/// By thread `thread` of `threads`; consecutive ones write consecutive elements.
template <class T, class Out>
__device__ void write_tile(const TileSums& tile, const LinearOutput<T, Out>& out, int thread,
                           int threads) {
  constexpr int kGroup = static_cast<int>(kGateUpGroup);
  const int width = out.silu_mul ? tile.features / 2 : tile.features;
  for (int i = thread; i < tile.rows * width; i += threads) {
    const int row = i / width, j = i % width;
    const int64_t to = tile.first_row + row;
    if (out.silu_mul) {
      const int feature = j / kGroup * 2 * kGroup + j % kGroup;
      const int64_t column = tile.first_feature / 2 + j;
      if (column >= out.width()) continue;
      out.store_gated(to, column, tile.sum(row, feature), tile.sum(row, feature + kGroup));
      continue;
    }
    const int64_t stored = tile.first_feature + j;
    int64_t column = stored, feature = stored;
    if (out.gate_up) {
      column = stored / (2 * kGroup) * kGroup + stored % kGroup;
      feature = column + (stored / kGroup % 2 == 1 ? out.width() : 0);
    }
    if (column < out.width()) out.store_feature(to, feature, tile.sum(row, j));
  }
}

/// Calls f(T{}, Out{}).
template <class F>
void with_linear_types(const LinearArgs& args, F&& f) {
  with_half(args.dtype, [&](auto element) {
    if (args.out_dtype == DType::kF32) {
      f(element, float{});
    } else {
      f(element, element);
    }
  });
}

}  // namespace headrace::cuda
