#pragma once

// Tensor-core products of codes of 8 bits.
//
// mma_16x8x32: c [16, 8] += a [16, 32] . b [32, 8]. Lane = 4 * g + q, g < 8, q < 4, holds
//   a[0]: row g,     k = 4q to 4q + 3      a[2]: row g,     k = 4q + 16 to 4q + 19
//   a[1]: row g + 8, k = 4q to 4q + 3      a[3]: row g + 8, k = 4q + 16 to 4q + 19
//   b[0]: k = 4q to 4q + 3, column g       b[1]: k = 4q + 16 to 4q + 19, column g
// and c as mma_16x8x16 has it (mma.cuh). Sums of e4m3 are float32, of int8 exact int32. Cards
// before sm_89 have no product of e4m3: there both sides become float16, exactly, in registers.

#include "cuda/device/codes.cuh"
#include "cuda/device/mma.cuh"

namespace headrace::cuda {

struct Float8Code {
  using Sum = float;
};
struct Int8Code {
  using Sum = int32_t;
};

#if defined(HEADRACE_CUDA_EMULATION)

inline double number_of(Float8Code, uint8_t code) { return emulation::float8_number(code); }
inline double number_of(Int8Code, uint8_t code) { return static_cast<int8_t>(code); }

struct Mma8Payload {
  void* c;
  const uint32_t* a;
  const uint32_t* b;
};

/// Sums are exact in double; one rounding a call.
template <class Code>
const char* mma8_on_host(void* const* payloads) {
  double a[16][32], b[32][8];
  const auto number = [](uint32_t word, int i) {
    return number_of(Code{}, static_cast<uint8_t>(word >> 8 * i));
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto* own = static_cast<const Mma8Payload*>(payloads[lane]);
    if (own == nullptr) return "a matrix product without all lanes";
    const int g = lane / 4, q = lane % 4;
    for (int i = 0; i < 4; ++i) {
      for (int w = 0; w < 4; ++w) a[g + w % 2 * 8][4 * q + w / 2 * 16 + i] = number(own->a[w], i);
      for (int w = 0; w < 2; ++w) b[4 * q + w * 16 + i][g] = number(own->b[w], i);
    }
  }
  double sums[16][8];
  emulation::multiply_16x8x32(a, b, sums);
  for (int lane = 0; lane < kWarp; ++lane) {
    using Sum = typename Code::Sum;
    auto* c = static_cast<Sum*>(static_cast<const Mma8Payload*>(payloads[lane])->c);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      c[i] = static_cast<Sum>(static_cast<double>(c[i]) + sums[row][column]);
    }
  }
  return nullptr;
}

template <class Code>
inline void mma_16x8x32(typename Code::Sum (&c)[4], const uint32_t (&a)[4],
                        const uint32_t (&b)[2]) {
  Mma8Payload payload{c, a, b};
  emulation::warp_collective(kAllLanes, &mma8_on_host<Code>, &payload,
                             std::source_location::current());
}

#else

/// Four e4m3 as two pairs of float16.
__device__ inline void float8_to_pairs(uint32_t codes, uint32_t (&out)[2]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const uint32_t high = choose_bytes(codes, 0, i == 0 ? 0x1404u : 0x3424u);  // to upper bytes
    const uint32_t bits = (high & 0x80008000u) | (high & 0x7f007f00u) >> 1;
    out[i] = multiply_add_pair<F16>(bits, 0x5c005c00u, 0x80008000u);  // times 2^8
  }
}

template <class Code>
__device__ inline void mma_16x8x32(typename Code::Sum (&c)[4], const uint32_t (&a)[4],
                                   const uint32_t (&b)[2]);

template <>
__device__ inline void mma_16x8x32<Float8Code>(float (&c)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  HEADRACE_UNROLL
  for (int half = 0; half < 2; ++half) {  // 16 k each
    uint32_t low[2], high[2], columns[2];
    float8_to_pairs(a[2 * half], low);
    float8_to_pairs(a[2 * half + 1], high);
    float8_to_pairs(b[half], columns);
    const uint32_t rows[4] = {low[0], high[0], low[1], high[1]};
    mma_16x8x16<F16>(c, rows, columns);
  }
#endif
}

template <>
__device__ inline void mma_16x8x32<Int8Code>(int32_t (&c)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

}  // namespace headrace::cuda
