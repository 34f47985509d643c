#pragma once

// Rows as codes and scales: what all kernels that round share, so that they give the same bits.

#include "cuda/device/reduce.cuh"
#include "cuda/device/rounding8.cuh"
#include "cuda/kernels/rounded/round_rows.h"

namespace headrace::cuda {

/// A number's size; infinity if it isn't finite.
__device__ inline float finite_size(float number) {
  const float size = float_of_bits(bits_of_float(number) & 0x7fffffffu);
  return size <= 0x1.fffffep127f ? size : float_of_bits(0x7f800000u);
}

/// What a scale is made of: the largest finite_size() and that of all codes.
struct RowScale {
  float factor, scale;  // from numbers to codes, and back

  __device__ RowScale(float top, float most) {
    const bool finite = top <= 0x1.fffffep127f, none = top < 0x1p-100f;
    factor = finite && !none ? most / top : 0.0f;
    scale = !finite ? float_of_bits(0x7fc00000u) : none ? 0.0f : top / most;
  }
};

/// Where rows lie as codes (RoundedRows).
struct RowCodes {
  uint8_t* codes;
  float* scales;
  int64_t stride, scale_stride;
  bool float8, by_unit;

  RowCodes(const QuantLayout& layout, int64_t count, void* data) {
    const RoundedRows rows(layout, count);
    codes = static_cast<uint8_t*>(data);
    scales = reinterpret_cast<float*>(codes + rows.scales_at());
    stride = rows.stride;
    scale_stride = rows.scale_stride;
    float8 = has_float8(layout.format);
    by_unit = layout.format.activations == Activations::kFloat8Groups;
  }

  __device__ float most() const { return float8 ? 448.0f : 127.0f; }
  __device__ uint32_t code_of(float number, const RowScale& scale) const {
    const float wanted = scale.factor == 0.0f ? 0.0f : number * scale.factor;
    return float8 ? e4m3_of(wanted) : int8_of(wanted);
  }
};

}  // namespace headrace::cuda
