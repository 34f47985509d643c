#pragma once

// The warp-wide tensor-core product of sm_80 and later, and the matrix load that goes with it.
//
// mma_16x8x16: c [16, 8] f32 += a [16, 16] . b [16, 8]. Lane = 4 * g + q, g < 8, q < 4, holds
//   a[0]: row g,     k = 2q, 2q + 1      a[2]: row g,     k = 2q + 8, 2q + 9
//   a[1]: row g + 8, k = 2q, 2q + 1      a[3]: row g + 8, k = 2q + 8, 2q + 9
//   b[0]: k = 2q, 2q + 1, column g       b[1]: k = 2q + 8, 2q + 9, column g
//   c[0], c[1]: row g, columns 2q, 2q + 1        c[2], c[3]: row g + 8
// A product adds its 16 k to c in one step: which slot which of them has doesn't matter to the
// bits, and on sm_90 neither does whether mma.sync or wgmma adds them, whatever its shape, nor
// which of a and b is which (measured on an H100; cuda/host/trials/kernel_trials.h checks linears
// on the card at hand). What matters is which 16 k belong together and their order: everywhere they
// are consecutive, from 0 on.

#include "cuda/device/numbers.cuh"

namespace headrace::cuda {

struct LanePlace {
  int g, q;
};

__device__ inline LanePlace lane_place() { return {lane_id() / 4, lane_id() % 4}; }

#if defined(HEADRACE_CUDA_EMULATION)

struct MmaPayload {
  float* c;
  const uint32_t* a;
  const uint32_t* b;
};

/// Products are exact in double; one rounding a call, as a tensor core has no more.
template <class T>
const char* mma_on_host(void* const* payloads) {
  double a[16][16], b[16][8];
  const auto half = [](uint32_t word, int i) {
    return static_cast<double>(to_float(T{static_cast<uint16_t>(word >> (16 * i))}));
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* own = static_cast<const MmaPayload*>(payloads[lane]);
    if (own == nullptr) return "a matrix product without all lanes";
    const int g = lane / 4, q = lane % 4;
    for (int w = 0; w < 4; ++w) {
      for (int i = 0; i < 2; ++i) a[g + w % 2 * 8][2 * q + w / 2 * 8 + i] = half(own->a[w], i);
    }
    for (int w = 0; w < 2; ++w) {
      for (int i = 0; i < 2; ++i) b[2 * q + w * 8 + i][g] = half(own->b[w], i);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* c = static_cast<const MmaPayload*>(payloads[lane])->c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = static_cast<double>(c[i]);
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      c[i] = static_cast<float>(sum);
    }
  }
  return nullptr;
}

template <class T>
inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaPayload payload{c, a, b};
  emulation::warp_collective(kAllLanes, &mma_on_host<T>, &payload, std::source_location::current());
}

struct LoadMatrixPayload {
  const void* row;
  uint32_t* out;
};

template <bool kTransposed>
inline const char* load_matrix_on_host(void* const* payloads) {
  for (int lane = 0; lane < kWarp; ++lane) {
    if (payloads[lane] == nullptr) return "a matrix load without all lanes";
  }
  const auto at = [&](int matrix, int row, int column) {
    const auto* from = static_cast<const LoadMatrixPayload*>(payloads[matrix * 8 + row])->row;
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(from) + column * 2, sizeof bits);
    return static_cast<uint32_t>(bits);
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      static_cast<const LoadMatrixPayload*>(payloads[lane])->out[matrix] =
          kTransposed ? at(matrix, 2 * q, g) | at(matrix, 2 * q + 1, g) << 16
                      : at(matrix, g, 2 * q) | at(matrix, g, 2 * q + 1) << 16;
    }
  }
  return nullptr;
}

inline void load_transposed(uint32_t (&out)[4], const void* row) {
  LoadMatrixPayload payload{row, out};
  emulation::warp_collective(kAllLanes, &load_matrix_on_host<true>, &payload,
                             std::source_location::current());
}

inline void load_matrices(uint32_t (&out)[4], const void* row) {
  LoadMatrixPayload payload{row, out};
  emulation::warp_collective(kAllLanes, &load_matrix_on_host<false>, &payload,
                             std::source_location::current());
}

#else

template <class T>
__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
__device__ inline void mma_16x8x16<Bf16>(float (&c)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ inline void mma_16x8x16<F16>(float (&c)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Four 8x8 matrices of 16-bit elements in shared memory, transposed: lane 8 * m + r gives the
/// address of row r of matrix m (16 bytes, aligned); out[m] holds rows 2q, 2q + 1 of column g: what
/// mma takes as b where the matrices' rows are k.
__device__ inline void load_transposed(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

/// The same without transposing: out[m] holds row g, columns 2q, 2q + 1: what mma takes as a (row
/// halves first, then k halves) and, where the matrices' rows are columns of b, as b.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

#endif

}  // namespace headrace::cuda
