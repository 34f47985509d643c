#pragma once

// Codes of quantized KV caches (kernels/kv_layout.h has what they mean) on their way into tensor
// cores, as float16 numbers without rounding:
//   int8, uint4  a code set into the lowest bits of a float16 is that many of its smallest steps,
//                code * 2^-24: a mask makes the number, tensor cores take such small ones exactly.
//                uint4's second and fourth nibble stay four bits higher: 16 times as much.
//   float8       on compute capability 8.9 and later a conversion of two; before, exponent and
//                mantissa moved to a float16's are the number * 2^-8
// What a number is of the code is made up for in the sums (kUnit), as are scales.

#include <type_traits>

#include "cuda/device/codes.cuh"

namespace headrace::cuda {

struct CodeI8 {
  uint8_t bits;
};
struct CodeF8 {
  uint8_t bits;
};
/// Two of them.
struct CodeU4 {
  uint8_t bits;
};

/// How keys or values of a token are made of codes: low + step * code.
struct KvScale {
  float step, low;
};

template <class Cache>
struct CodeTraits {
  static constexpr bool kCodes = false;
};

template <>
struct CodeTraits<CodeI8> {
  static constexpr bool kCodes = true;
  static constexpr int kPerByte = 1;
  static constexpr bool kHasLow = false;
  static constexpr float kZero = 128.0f;                // taken away from a code
  static constexpr uint32_t kPlainScale = 0x3f800000u;  // a step of 1
};

template <>
struct CodeTraits<CodeF8> {
  static constexpr bool kCodes = true;
  static constexpr int kPerByte = 1;
  static constexpr bool kHasLow = false;
  static constexpr float kZero = 0.0f;
  static constexpr uint32_t kPlainScale = 0x3f800000u;
};

template <>
struct CodeTraits<CodeU4> {
  static constexpr bool kCodes = true;
  static constexpr int kPerByte = 2;
  static constexpr bool kHasLow = true;
  static constexpr float kZero = 0.0f;
  static constexpr uint32_t kPlainScale = 0x00003f80u;
};

/// What a product's number times is the code.
template <class Code>
__device__ constexpr float code_unit() {
  return 0x1p24f;
}
template <>
__device__ constexpr float code_unit<CodeF8>() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return 1.0f;
#else
  return 0x1p8f;
#endif
}

template <class Code>
__device__ inline KvScale kv_scale(uint32_t bits) {
  if constexpr (CodeTraits<Code>::kHasLow) {
    return {float_of_bits(bits << 16), float_of_bits(bits & 0xffff0000u)};
  } else {
    return {float_of_bits(bits), 0.0f};
  }
}

/// The number that a float8_e4m3 byte is, NaN apart.
__device__ inline float f8_to_float(uint8_t bits) {
  return to_float(F16{static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7fu) << 7)}) * 0x1p8f;
}

/// To nearest, ties to even. REQUIRES: |value| <= 448.
__device__ inline uint8_t float_to_f8(float value) {
  const uint32_t bits = bits_of_float(value), rest = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (rest < 0x3c800000u) {  // below 2^-6: multiples of 2^-9, which adding 2^14 leaves
    return static_cast<uint8_t>(sign |
                                (bits_of_float(float_of_bits(rest) + 0x1p14f) - 0x46800000u));
  }
  const uint32_t rounded = rest + 0x7ffffu + (rest >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded - 0x3c000000u) >> 20));
}

/// Pairs of numbers: of bytes 0 and 1, and of bytes 2 and 3.
__device__ inline void f8_to_pairs(uint32_t word, uint32_t& low, uint32_t& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n\t.reg .b16 a, b;\n\tmov.b32 {a, b}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, a;\n\tcvt.rn.f16x2.e4m3x2 %1, b;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(word));
#else
  const auto pair = [](uint32_t raised) {  // bytes 1 and 3
    return (raised & 0x80008000u) | (raised & 0x7f007f00u) >> 1;
  };
  low = pair(choose_bytes(word, 0, 0x1404u));
  high = pair(choose_bytes(word, 0, 0x3424u));
#endif
}

/// Words of codes as load_matrices() gives them, to b of products: the word's codes are k of one
/// column, [step][word of b]. Of a key's dimensions, from the lane's first on:
///   int8    b[0]: 0, 2     b[1]: 1, 3
///   float8  b[0]: 0, 1     b[1]: 2, 3
///   uint4   b[0]: 0, 4     b[1]: 1, 5, 16 times;     of the next step: 2, 6 and 3, 7
/// code_query() (kernels/attention/attention_codes.cuh) has the queries to match.
template <class Code>
__device__ inline void key_pairs(uint32_t word, uint32_t (&b)[CodeTraits<Code>::kPerByte][2]) {
  if constexpr (std::is_same_v<Code, CodeI8>) {
    b[0][0] = word & 0x00ff00ffu;
    b[0][1] = choose_bytes(word, 0, 0x4341u);
  } else if constexpr (std::is_same_v<Code, CodeF8>) {
    f8_to_pairs(word, b[0][0], b[0][1]);
  } else {
    const uint32_t next = word >> 8;
    b[0][0] = word & 0x000f000fu;
    b[0][1] = word & 0x00f000f0u;
    b[1][0] = next & 0x000f000fu;
    b[1][1] = next & 0x00f000f0u;
  }
}

/// Words as load_transposed() gives them: two tokens' neighbouring columns. pairs[r]: of column r
/// of them. uint4: odd ones are 16 times as much.
template <class Code>
__device__ inline void value_pairs(uint32_t word,
                                   uint32_t (&pairs)[2 * CodeTraits<Code>::kPerByte]) {
  if constexpr (std::is_same_v<Code, CodeI8>) {
    pairs[0] = word & 0x00ff00ffu;
    pairs[1] = choose_bytes(word, 0, 0x4341u);
  } else if constexpr (std::is_same_v<Code, CodeF8>) {
    f8_to_pairs(choose_bytes(word, word, 0x3120u), pairs[0], pairs[1]);
  } else {
    const uint32_t next = word >> 8;
    pairs[0] = word & 0x000f000fu;
    pairs[1] = word & 0x00f000f0u;
    pairs[2] = next & 0x000f000fu;
    pairs[3] = next & 0x00f000f0u;
  }
}

/// A token's head, number by number.
template <class Code>
struct CodeRow {
  const Code* codes;
  KvScale scale;

  __device__ float operator[](int32_t i) const {
    if constexpr (std::is_same_v<Code, CodeI8>) {
      return scale.step * (static_cast<float>(codes[i].bits) - 128.0f);
    } else if constexpr (std::is_same_v<Code, CodeF8>) {
      return scale.step * f8_to_float(codes[i].bits);
    } else {
      const uint32_t code = codes[i / 2].bits >> (i % 2 * 4) & 15u;
      return scale.low + scale.step * static_cast<float>(code);
    }
  }
};

}  // namespace headrace::cuda
