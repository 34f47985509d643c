#pragma once

// The matrix load of mma.cuh for operands whose k lie side by side.

#include "cuda/device/mma.cuh"

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

inline const char* load_rows_on_host(void* const* payloads) {
  for (int lane = 0; lane < kWarp; ++lane) {
    if (payloads[lane] == nullptr) return "a matrix load without all lanes";
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto* from = static_cast<const LoadMatrixPayload*>(payloads[matrix * 8 + g])->row;
      std::memcpy(&static_cast<const LoadMatrixPayload*>(payloads[lane])->out[matrix],
                  static_cast<const char*>(from) + q * 4, 4);
    }
  }
  return nullptr;
}

inline void load_matrices(uint32_t (&out)[4], const void* row) {
  LoadMatrixPayload payload{row, out};
  emulation::warp_collective(kAllLanes, &load_rows_on_host, &payload,
                             std::source_location::current());
}

#else

/// Four 8x8 matrices of 16-bit elements in shared memory: lane 8 * m + r gives the address of row r
/// of matrix m (16 bytes, aligned); out[m] holds columns 2q, 2q + 1 of row g: what mma takes as b
/// where the matrices' columns are k.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

#endif

}  // namespace headrace::cuda
