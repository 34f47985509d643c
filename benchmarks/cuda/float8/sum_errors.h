#pragma once

// How far products of FP8 are from the exact sums of the same codes, by k: of our kernels, and of
// cuBLASLt's.

#include <string>

#include "benchmarks/cuda/device/bench_device.h"
#include "benchmarks/cuda/kernels/cublaslt.h"

namespace headrace::bench {

/// Prints a line of JSON for each k, way to multiply and kind of scales. `peer` may be null.
void print_sum_errors(BenchDevice& device, const CublasLt* peer);

}  // namespace headrace::bench
