#include "tensor/dtype.h"

namespace headrace {

size_t dtype_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
      return 1;
    case DType::kU4:
    case DType::kF4E2M1:
      return 0;
  }
  return 0;
}

const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kI64:
      return "int64";
    case DType::kF32:
      return "float32";
    case DType::kI32:
      return "int32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kI16:
      return "int16";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kBool:
      return "bool";
    case DType::kU4:
      return "uint4";
    case DType::kF8E4M3:
      return "float8_e4m3";
    case DType::kF4E2M1:
      return "float4_e2m1";
  }
  return "unknown";
}

float f16_to_f32(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  float out;
  if (magnitude >= 0x7c00u) {
    const uint32_t wide = sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13);
    std::memcpy(&out, &wide, sizeof out);
    return out;
  }
  // Scaling by 2^112 moves the half exponent bias (15) to the float one (127); subnormals too.
  const uint32_t shifted = magnitude << 13;
  std::memcpy(&out, &shifted, sizeof out);
  out *= 0x1p112f;
  uint32_t wide;
  std::memcpy(&wide, &out, sizeof wide);
  wide |= sign;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

uint16_t f32_to_f16(float value) noexcept {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) {
    // Subnormal half: adding 0.5 aligns the mantissa so that the FPU rounds it to even.
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    uint32_t rounded;
    std::memcpy(&rounded, &magnitude, sizeof rounded);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | (bits >> 13));
}

}  // namespace headrace
