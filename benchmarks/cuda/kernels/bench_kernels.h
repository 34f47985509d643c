#pragma once

// Kernels of the benchmarks' own: what memory gives at most, and numbers to work on.

#include <cstddef>
#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::bench {

struct ReadArgs {
  const void* data = nullptr;  ///< aligned to 16
  size_t bytes = 0;            ///< a multiple of 16
  uint32_t* sinks = nullptr;   ///< [blocks * kReadThreads]: all of them together xor to all words
  unsigned blocks = 0;
};

inline constexpr unsigned kReadThreads = 512;

/// Reads every byte once, and does nothing that takes time besides.
void read_all(const ReadArgs& args, cuda::Stream stream);

/// bfloat16 numbers, uniform in [-1, 1).
void fill_uniform(uint16_t* data, int64_t count, uint32_t seed, cuda::Stream stream);

/// float32 numbers, bell-shaped around 0 with the given standard deviation.
void fill_bell(float* data, int64_t count, uint32_t seed, float deviation, cuda::Stream stream);

}  // namespace headrace::bench
