#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace headrace {

/// Element types of tensors in memory and in files.
enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kU4,
  kF8E4M3,  ///< in checkpoints and quantized KV caches only, with scales beside it (float8.h)
  kF4E2M1,  ///< in checkpoints only (float4.h), two in a byte
};

/// Bytes of an element; 0 for kU4 (quantized KV caches only) and kF4E2M1, whose elements share
/// bytes.
size_t dtype_size(DType dtype) noexcept;
/// "float32", "bfloat16", ... Never null.
const char* dtype_name(DType dtype) noexcept;

/// bfloat16 bits to float: exact.
inline float bf16_to_f32(uint16_t bits) noexcept {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

/// Float to bfloat16 bits, round to nearest, ties to even; NaN stays a (quiet) NaN.
inline uint16_t f32_to_bf16(float value) noexcept {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// IEEE half bits to float: exact.
float f16_to_f32(uint16_t bits) noexcept;
/// Float to IEEE half bits, round to nearest, ties to even; overflow gives infinity.
uint16_t f32_to_f16(float value) noexcept;

}  // namespace headrace
