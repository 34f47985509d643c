#pragma once

// From a tile's sums to the output: bias, gate and up, rounding, residual.

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/with_gate.cuh"

namespace headrace::cuda {

inline constexpr int kGroup = static_cast<int>(kGateUpGroup);  // features that lie side by side

/// Eight elements, aligned to 16 bytes.
template <class T>
__device__ inline void load_group(const T* from, float (&to)[kGroup]) {
  constexpr int kSize = Vector<T>::kSize;
  HEADRACE_UNROLL
  for (int first = 0; first < kGroup; first += kSize) {
    const Vector<T> part = load_vector(from + first);
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) to[first + i] = to_float(part.at[i]);
  }
}

template <class T, class Out>
struct LinearOutput {
  const T* bias;      // [n] or null
  const T* residual;  // [T, columns of out] or null
  int64_t residual_stride;
  Out* out;
  int64_t out_stride;
  int64_t n;
  bool gate_up, gate_mul;
  GateSpec gate;  // with gate_mul
  bool vectors;   // groups of bias, residual and out are aligned

  /// Columns of a gate, or of out.
  __device__ int64_t width() const { return gate_up ? n / 2 : n; }
  /// Of a stored row of the weight: its column of the gate, or of out; and which feature it is.
  __device__ int64_t column_of(int64_t stored) const {
    return gate_up ? stored / (2 * kGroup) * kGroup + stored % kGroup : stored;
  }
  __device__ int64_t feature_of(int64_t stored) const {
    return column_of(stored) + (gate_up && stored / kGroup % 2 == 1 ? width() : 0);
  }

  __device__ float with_bias(float sum, int64_t feature) const {
    return bias == nullptr ? sum : sum + to_float(bias[feature]);
  }
  /// `f`, of with_gate(): of gate and up rounded as gate_mul() finds them.
  template <class Gate>
  __device__ static float gated(const Gate& f, float gate_sum, float up) {
    return f(to_float(from_float<T>(gate_sum)), to_float(from_float<T>(up)));
  }
  template <class Gate>
  __device__ float gated(const Gate& f, int64_t column, float gate_sum, float up) const {
    return gated(f, with_bias(gate_sum, column), with_bias(up, width() + column));
  }
  /// Of experts' matrices: with the bias of this one.
  __device__ LinearOutput of_expert(int32_t expert) const {
    LinearOutput own = *this;
    if (bias != nullptr) own.bias += expert * n;
    return own;
  }

  __device__ void store(int64_t row, int64_t column, float value) const {
    if (residual != nullptr) {
      value = to_float(from_float<Out>(value)) + to_float(residual[row * residual_stride + column]);
    }
    out[row * out_stride + column] = from_float<Out>(value);
  }
  __device__ void store_feature(int64_t row, int64_t stored, float sum) const {
    if (column_of(stored) >= width()) return;
    const int64_t feature = feature_of(stored);
    store(row, feature, with_bias(sum, feature));
  }
  __device__ void store_gated(int64_t row, int64_t column, float gate_sum, float up) const {
    if (column >= width()) return;
    float value = 0.0f;
    with_gate(gate, [&](const auto& f) { value = gated(f, column, gate_sum, up); });
    store(row, column, value);
  }

  /// Eight columns from `column` on, values as they are to be rounded.
  __device__ void store_group(int64_t row, int64_t column, const float (&values)[kGroup]) const {
    const int64_t end = gate_mul || !gate_up ? width() : n;
    if (!vectors || column + kGroup > end) {
      HEADRACE_UNROLL
      for (int i = 0; i < kGroup; ++i) {
        if (column + i < end) store(row, column + i, values[i]);
      }
      return;
    }
    float add[kGroup];
    if (residual != nullptr) load_group(residual + row * residual_stride + column, add);
    constexpr int kSize = Vector<Out>::kSize;
    HEADRACE_UNROLL
    for (int first = 0; first < kGroup; first += kSize) {
      Vector<Out> rounded;
      HEADRACE_UNROLL
      for (int i = 0; i < kSize; ++i) {
        rounded.at[i] = from_float<Out>(values[first + i]);
        if (residual == nullptr) continue;
        rounded.at[i] = from_float<Out>(to_float(rounded.at[i]) + add[first + i]);
      }
      store_vector(out + row * out_stride + column + first, rounded);
    }
  }
};

template <class T, class Out>
LinearOutput<T, Out> linear_output(const LinearArgs& args) {
  const auto* residual = static_cast<const T*>(args.residual.data);
  auto* out = static_cast<Out*>(args.out.data);
  // A gate_up weight's second half begins at column n / 2.
  const bool halves = !args.layout.gate_up || args.gate_mul || args.layout.n / 2 % kGroup == 0;
  return {static_cast<const T*>(args.bias),
          residual,
          args.residual.stride,
          out,
          args.out.stride,
          args.layout.n,
          args.layout.gate_up,
          args.gate_mul,
          args.gate,
          halves && is_vectorizable(out, args.out.stride, 0) &&
              (residual == nullptr || is_vectorizable(residual, args.residual.stride, 0))};
}

/// Sums [rows][kFeatures] in shared memory, `stride` floats apart (a multiple of 4), to the output.
/// By thread `thread` of `threads`; neighbours write neighbouring groups.
template <int kFeatures, class T, class Out>
__device__ void write_sums(const float* sums, int stride, int rows, int64_t first_row,
                           int64_t first_stored, const LinearOutput<T, Out>& out, int thread,
                           int threads) {
  const auto read = [&](int row, int feature, float (&to)[kGroup]) {
    load_group(sums + row * stride + feature, to);
  };
  constexpr int kGroups = kFeatures / kGroup, kPairs = kGroups / 2;
  if (out.gate_mul) {
    for (int i = thread; i < rows * kPairs; i += threads) {
      const int row = i / kPairs, pair = i % kPairs;
      const int64_t column = first_stored / 2 + pair * kGroup;
      if (column >= out.width()) continue;
      float gate[kGroup], up[kGroup];
      read(row, pair * 2 * kGroup, gate);
      read(row, pair * 2 * kGroup + kGroup, up);
      with_gate(out.gate, [&](const auto& f) {
        HEADRACE_UNROLL
        for (int j = 0; j < kGroup; ++j) {
          if (column + j < out.width()) gate[j] = out.gated(f, column + j, gate[j], up[j]);
        }
      });
      out.store_group(first_row + row, column, gate);
    }
    return;
  }
  for (int i = thread; i < rows * kGroups; i += threads) {
    const int row = i / kGroups, group = i % kGroups;
    const int64_t stored = first_stored + group * kGroup, feature = out.feature_of(stored);
    if (out.column_of(stored) >= out.width()) continue;
    float values[kGroup];
    read(row, group * kGroup, values);
    HEADRACE_UNROLL
    for (int j = 0; j < kGroup; ++j) {
      if (out.column_of(stored) + j < out.width()) {
        values[j] = out.with_bias(values[j], feature + j);
      }
    }
    if (out.gate_up && out.column_of(stored) + kGroup > out.width()) {
      HEADRACE_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        if (out.column_of(stored) + j < out.width()) {
          out.store(first_row + row, feature + j, values[j]);
        }
      }
      continue;
    }
    out.store_group(first_row + row, feature, values);
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
