#pragma once

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// 16 bytes that no other block will read again: past the L1 cache.
__device__ inline uint4 load_streamed(const void* from) {
#if defined(__CUDA_ARCH__)
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
#else
  return *static_cast<const uint4*>(from);
#endif
}

}  // namespace headrace::cuda
