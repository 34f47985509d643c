#pragma once

// Sums of products of e4m3 as this GPU's tensor cores make them, by the instructions that the
// kernels use.

#include <cstdint>

#include "benchmarks/cuda/float8/sum_cases.h"
#include "cuda/host/runtime/cuda_check.h"

namespace headrace::bench {

inline constexpr int kCasesOfBlock = 8;

struct TensorCoreSums {
  const uint8_t* a = nullptr;  ///< [count][kMostSumCodes], aligned to 16
  const uint8_t* b = nullptr;  ///< likewise
  const float* start = nullptr;
  float* out = nullptr;  ///< [count][copies]
  int count = 0;         ///< a multiple of kCasesOfBlock
  int steps = 1;         ///< of a chain, up to kMostSumSteps
};

/// Each case is multiplied so often, in other rows.
inline constexpr int kWgmmaCopies = 8, kMmaCopies = 2;

/// wgmma m64n8k32. REQUIRES: compute capability 9.0.
void sum_by_wgmma(const TensorCoreSums& args, cuda::Stream stream);
/// mma.sync m16n8k32.
void sum_by_mma(const TensorCoreSums& args, cuda::Stream stream);

}  // namespace headrace::bench
