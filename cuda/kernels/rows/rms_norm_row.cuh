#pragma once

// One row of an RMS norm by a block, with what is added to it first.

#include "cuda/kernels/rows/norm_codes.cuh"

namespace headrace::cuda {

/// What is added to a row: elements of another one, null: nothing.
template <class T>
struct DeltaRow {
  const T* from;

  template <int kSize>
  __device__ Chunk<T, kSize> load(int64_t at) const {
    return load_chunk<T, kSize>(from + at);
  }
  __device__ bool empty() const { return from == nullptr; }
};

/// values += delta, where there is one, as an op of its own would: rounded.
template <class T, int kSize, class Delta>
__device__ inline void add_chunk(const Delta& delta, int64_t at, Chunk<T, kSize>& values, T* row) {
  if (delta.empty()) return;
  const Chunk<T, kSize> more = delta.template load<kSize>(at);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    values.at[i] = from_float<T>(to_float(values.at[i]) + to_float(more.at[i]));
  }
  store_chunk(row + at, values);
}

template <class T, int kSize>
__device__ inline float add_squares(const Chunk<T, kSize>& values, float sum) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    const float value = to_float(values.at[i]);
    sum = fmaf(value, value, sum);
  }
  return sum;
}

/// A norm's weight: elements of W. Null, of floats alone: ones.
template <class W>
struct NormWeight {
  using Element = W;
  const W* from;

  template <int kSize>
  __device__ void load(int64_t at, float (&to)[kSize]) const {
    if constexpr (std::is_same_v<W, float>) {
      if (from == nullptr) {
        HEADRACE_UNROLL
        for (int i = 0; i < kSize; ++i) to[i] = 1.0f;
        return;
      }
    }
    constexpr int kStep = kSize == 1 ? 1 : Vector<W>::kSize;
    HEADRACE_UNROLL
    for (int first = 0; first < kSize; first += kStep) {
      const Chunk<W, kStep> part = load_chunk<W, kStep>(from + at + first);
      HEADRACE_UNROLL
      for (int i = 0; i < kStep; ++i) to[first + i] = to_float(part.at[i]);
    }
  }
};

/// Calls f(NormWeight) for a norm of elements T.
template <class T, class F>
void with_norm_weight(const RmsNormArgs& args, F&& f) {
  if constexpr (!std::is_same_v<T, float>) {
    if (args.weight != nullptr && !args.float_weight) {
      return f(NormWeight<T>{static_cast<const T*>(args.weight)});
    }
  }
  f(NormWeight<float>{static_cast<const float*>(args.weight)});
}

template <class T, int kSize, class W>
__device__ inline Chunk<T, kSize> scale_chunk(Chunk<T, kSize> values, float factor,
                                              const NormWeight<W>& weight, int64_t at, T* to) {
  float scale[kSize];
  weight.load(at, scale);
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    values.at[i] = from_float<T>(to_float(values.at[i]) * factor * scale[i]);
  }
  store_chunk(to + at, values);
  return values;
}

/// By all threads of a block: row += delta, then to = norm(row) * weight, which goes to `codes`,
/// too. kSize elements a load: 16 bytes or, where rows aren't aligned, one. `partial`: [kWarp],
/// shared.
template <class T, int kSize, class Delta, class W, class Codes>
__device__ inline void rms_norm_row(T* row, const Delta& delta, const NormWeight<W>& weight, T* to,
                                    int64_t cols, float eps, float* partial, const Codes& codes) {
  const int64_t first = int64_t{threadIdx.x} * kSize, step = int64_t{blockDim.x} * kSize;
  Chunk<T, kSize> held[kHeldChunks];
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    if (first + h * step < cols) held[h] = load_chunk<T, kSize>(row + first + h * step);
  }
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at >= cols) continue;
    add_chunk(delta, at, held[h], row);
    squares = add_squares(held[h], squares);
  }
  for (int64_t at = first + kHeldChunks * step; at < cols; at += step) {
    Chunk<T, kSize> values = load_chunk<T, kSize>(row + at);
    add_chunk(delta, at, values, row);
    squares = add_squares(values, squares);
  }
  squares = block_reduce(squares, Sum{}, partial);
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
  HEADRACE_UNROLL
  for (int h = 0; h < kHeldChunks; ++h) {
    const int64_t at = first + h * step;
    if (at < cols) held[h] = scale_chunk(held[h], factor, weight, at, to);
  }
  for (int64_t at = first + kHeldChunks * step; at < cols; at += step) {
    scale_chunk(load_chunk<T, kSize>(row + at), factor, weight, at, to);
  }
  if constexpr (Codes::kWanted) put_codes(held, to, cols, codes, partial);
}

}  // namespace headrace::cuda
