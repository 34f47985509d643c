#include "cuda/kernels/probe.h"

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

int probe_kernels() { return 0; }

#else

namespace {

// All kernels are compiled for the same architectures.
__global__ void any_kernel() {}

}  // namespace

int probe_kernels() {
  cudaFuncAttributes found{};
  return cudaFuncGetAttributes(&found, any_kernel);
}

#endif

}  // namespace headrace::cuda
