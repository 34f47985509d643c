#pragma once

// Small integers to 16-bit floats, exactly, in registers: what mma takes as a of codes less their
// zero (mma.cuh; kernels/quant/quant_layout.h for where the codes are).
//
// A code set into a float's mantissa above a fixed exponent is that power of two plus the code; one
// instruction takes the power and the zero away again. float16 has room for the upper four bits of
// a byte, too (1024 + 16 c, times 1/16); bfloat16 has seven bits, so that int8 goes by float32,
// whose upper half is the bfloat16 since a code less its zero has eight bits at most.

#include "cuda/device/numbers.cuh"

namespace headrace::cuda {

/// Bytes of `low` (0 to 3) and `high` (4 to 7), as the selector's digits say, the lowest first.
__device__ inline uint32_t choose_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(all >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return out;
#endif
}

/// (word & mask) | bits, in one instruction.
__device__ inline uint32_t mask_and_set(uint32_t word, uint32_t mask, uint32_t bits) {
#if defined(__CUDA_ARCH__)
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
#else
  return (word & mask) | bits;
#endif
}

/// a * b + c of both halves, rounded once.
template <class T>
__device__ inline uint32_t multiply_add_pair(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [](uint32_t word, int i) {
    return to_float(T{static_cast<uint16_t>(word >> 16 * i)});
  };
  return pack_pair<T>(fmaf(half(a, 0), half(b, 0), half(c, 0)),
                      fmaf(half(a, 1), half(b, 1), half(c, 1)));
}

#if defined(__CUDA_ARCH__)
template <>
__device__ inline uint32_t multiply_add_pair<Bf16>(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
template <>
__device__ inline uint32_t multiply_add_pair<F16>(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
#endif

/// What is taken away from codes of a row: made of its zero once for a group.
template <class T, int kBits>
struct CodeZero;

template <>
struct CodeZero<Bf16, 4> {
  uint32_t pair;  // -(128 + zero), twice: zero is 16 at most
  __device__ explicit CodeZero(uint32_t zero) : pair(choose_bytes(zero, 0xc3u, 0x4040u)) {}
};
template <>
struct CodeZero<F16, 4> {
  uint32_t pair, high_pair;  // -(1024 + zero), -(64 + zero)
  __device__ explicit CodeZero(uint32_t zero)
      : pair((0xe400u + zero) * 0x10001u), high_pair((0xd400u + (zero << 4)) * 0x10001u) {}
};
template <>
struct CodeZero<Bf16, 8> {
  float value;  // -(2^23 + zero)
  __device__ explicit CodeZero(uint32_t zero) : value(float_of_bits(0xcb000000u | zero)) {}
};
template <>
struct CodeZero<F16, 8> {
  uint32_t pair;  // -(1024 + zero), twice
  __device__ explicit CodeZero(uint32_t zero) : pair((0xe400u + zero) * 0x10001u) {}
};

/// a of a step, from the lane's codes: int4 one word, int8 two. `low`, `high`: of rows g and g + 8.
template <class T, int kBits>
__device__ void codes_to_a(const uint32_t* codes, const CodeZero<T, kBits>& low,
                           const CodeZero<T, kBits>& high, uint32_t (&a)[4]);

template <>
__device__ inline void codes_to_a<Bf16, 4>(const uint32_t* codes, const CodeZero<Bf16, 4>& low,
                                           const CodeZero<Bf16, 4>& high, uint32_t (&a)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t raised =
        mask_and_set(codes[0] >> (4 * i), 0x000f000fu, 0x43004300u);  // 128 + code
    a[i] = multiply_add_pair<Bf16>(raised, 0x3f803f80u, i % 2 == 0 ? low.pair : high.pair);
  }
}

template <>
__device__ inline void codes_to_a<F16, 4>(const uint32_t* codes, const CodeZero<F16, 4>& low,
                                          const CodeZero<F16, 4>& high, uint32_t (&a)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const uint32_t word = codes[0] >> (8 * i);
    const uint32_t even = mask_and_set(word, 0x000f000fu, 0x64006400u);  // 1024 + code
    const uint32_t odd = mask_and_set(word, 0x00f000f0u, 0x64006400u);   // 1024 + 16 * code
    a[2 * i] = multiply_add_pair<F16>(even, 0x3c003c00u, low.pair);
    a[2 * i + 1] = multiply_add_pair<F16>(odd, 0x2c002c00u, high.high_pair);
  }
}

template <>
__device__ inline void codes_to_a<Bf16, 8>(const uint32_t* codes, const CodeZero<Bf16, 8>& low,
                                           const CodeZero<Bf16, 8>& high, uint32_t (&a)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float zero = i % 2 == 0 ? low.value : high.value;
    float pair[2];
    HEADRACE_UNROLL
    for (int j = 0; j < 2; ++j) {  // 2^23 + code, the code's byte being number 2 * i + j
      const auto byte = static_cast<uint32_t>(i % 2 * 2 + j);
      pair[j] = float_of_bits(choose_bytes(codes[i / 2], 0x4b000000u, 0x7650u + byte)) + zero;
    }
    a[i] = choose_bytes(bits_of_float(pair[0]), bits_of_float(pair[1]), 0x7632u);
  }
}

template <>
__device__ inline void codes_to_a<F16, 8>(const uint32_t* codes, const CodeZero<F16, 8>& low,
                                          const CodeZero<F16, 8>& high, uint32_t (&a)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t raised =
        choose_bytes(codes[i / 2], 0x64646464u, i % 2 == 0 ? 0x4140u : 0x4342u);  // 1024 + code
    a[i] = multiply_add_pair<F16>(raised, 0x3c003c00u, i % 2 == 0 ? low.pair : high.pair);
  }
}

/// Two scales as a layout has them, side by side.
struct ScalePair {
  float low, high;
};
__device__ inline ScalePair scales_of(uint32_t pair, bool f16) {
  if (f16) {
    return {to_float(F16{static_cast<uint16_t>(pair)}),
            to_float(F16{static_cast<uint16_t>(pair >> 16)})};
  }
  return {float_of_bits(pair << 16), float_of_bits(pair & 0xffff0000u)};
}

}  // namespace headrace::cuda
