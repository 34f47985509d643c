#pragma once

// A row that the threads of a block hold in chunks: what norms share.

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {

/// Chunks of a row that a thread holds between its two passes; those behind are read again.
inline constexpr int kHeldChunks = 4;
inline constexpr int64_t kMaxNormThreads = 512;

/// Threads for rows of `cols`: a property of the width alone, as the sum's tree hangs on it.
inline unsigned norm_threads(int64_t cols, int chunk) {
  const int64_t wanted = divide_up<int64_t>(cols, int64_t{chunk} * kHeldChunks);
  return static_cast<unsigned>(least(divide_up<int64_t>(wanted, kWarp) * kWarp, kMaxNormThreads));
}

template <class T, int kSize>
struct Chunk {
  T at[kSize];
};

template <class T, int kSize>
__device__ inline Chunk<T, kSize> load_chunk(const T* from) {
  if constexpr (kSize == 1) {
    return {{*from}};
  } else {
    const Vector<T> vector = load_vector(from);
    Chunk<T, kSize> out;
    for (int i = 0; i < kSize; ++i) out.at[i] = vector.at[i];
    return out;
  }
}

template <class T, int kSize>
__device__ inline void store_chunk(T* to, const Chunk<T, kSize>& chunk) {
  if constexpr (kSize == 1) {
    *to = chunk.at[0];
  } else {
    Vector<T> vector;
    for (int i = 0; i < kSize; ++i) vector.at[i] = chunk.at[i];
    store_vector(to, vector);
  }
}

}  // namespace headrace::cuda
