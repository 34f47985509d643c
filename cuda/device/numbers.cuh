#pragma once

// The 16-bit floats as device code sees them, and conversions that give the same bits on host and
// device.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

struct Bf16 {
  uint16_t bits;
};

struct F16 {
  uint16_t bits;
};

__host__ __device__ inline float float_of_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

__host__ __device__ inline uint32_t bits_of_float(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

__host__ __device__ inline bool is_nan(float value) { return value != value; }

__host__ __device__ inline float to_float(float value) { return value; }

__host__ __device__ inline float to_float(Bf16 value) {
  return float_of_bits(static_cast<uint32_t>(value.bits) << 16);
}

__host__ __device__ inline float to_float(F16 value) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(value.bits));
  return out;
#else
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return float_of_bits(sign | 0x70000000u | rest);  // inf and NaN
  // Scaling by 2^112 moves the exponent's bias from 15 to 127, subnormals included.
  return float_of_bits(sign | bits_of_float(float_of_bits(rest) * 0x1p112f));
#endif
}

/// Rounds to nearest, ties to even.
template <class T>
__host__ __device__ T from_float(float value);

template <>
__host__ __device__ inline float from_float<float>(float value) {
  return value;
}

template <>
__host__ __device__ inline Bf16 from_float<Bf16>(float value) {
#if defined(__CUDA_ARCH__)
  Bf16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
  return out;
#else
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // NaN, as the device has it
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

template <>
__host__ __device__ inline F16 from_float<F16>(float value) {
#if defined(__CUDA_ARCH__)
  F16 out;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
  return out;
#else
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return {0x7fff};
  if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // from 65520
  if (rest < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the lowest bits, rounded.
    const uint32_t sum = bits_of_float(float_of_bits(rest) + 0.5f);
    return {static_cast<uint16_t>(sign | (sum - 0x3f000000u))};
  }
  const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
#endif
}

/// Two values as a tensor core takes them: `low` in the lower half.
template <class T>
__host__ __device__ inline uint32_t pack_pair(float low, float high) {
  return static_cast<uint32_t>(from_float<T>(low).bits) |
         static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

#if defined(__CUDA_ARCH__)
template <>
__device__ inline uint32_t pack_pair<Bf16>(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
template <>
__device__ inline uint32_t pack_pair<F16>(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
#endif

/// 16 bytes of T: what one load or store moves.
template <class T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

template <class T>
__host__ __device__ inline Vector<T> load_vector(const T* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  Vector<T> out;
  __builtin_memcpy(&out, &raw, sizeof out);
  return out;
}

template <class T>
__host__ __device__ inline void store_vector(T* to, const Vector<T>& value) {
  uint4 raw;
  __builtin_memcpy(&raw, &value, sizeof raw);
  *reinterpret_cast<uint4*>(to) = raw;
}

/// May rows of `cols` elements, `stride` apart, be moved as vectors?
template <class T>
__host__ __device__ inline bool is_vectorizable(const T* data, int64_t stride, int64_t cols) {
  return (reinterpret_cast<uintptr_t>(data) & 15u) == 0 && stride % Vector<T>::kSize == 0 &&
         cols % Vector<T>::kSize == 0;
}

}  // namespace headrace::cuda
