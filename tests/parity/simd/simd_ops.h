#pragma once

// The SIMD vocabulary as functions over arrays, compiled once per ISA (simd_ops.cc). Counts are
// multiples of `lanes`.

#include <stdint.h>

namespace headrace {

struct SimdOps {
  int lanes;
  void (*exp)(const float* in, int64_t count, float* out);
  void (*exp2)(const float* in, int64_t count, float* out);
  void (*tanh)(const float* in, int64_t count, float* out);
  void (*to_bf16)(const float* in, int64_t count, uint16_t* out);
  void (*to_f16)(const float* in, int64_t count, uint16_t* out);
  void (*from_bf16)(const uint16_t* in, int64_t count, float* out);
  void (*from_f16)(const uint16_t* in, int64_t count, float* out);
  /// 2 * lanes numbers in; even and odd ones out.
  void (*split_bf16)(const uint16_t* in, float* even, float* odd);
  float (*reduce_add)(const float* lanes);
  float (*reduce_max)(const float* lanes);
  uint32_t (*greater_mask)(const float* a, const float* b);
  /// out[0, n) = in[0, n); returns the sum of what load_part read.
  float (*copy_part)(const float* in, int n, float* out);
  /// lanes * lanes numbers; out[j][i] = in[i][j].
  void (*transpose)(const float* in, float* out);
  /// 2 * lanes bytes: out[lane] = the lane's pair times `pair`, of signed bytes, of their low
  /// nibbles and of their high ones.
  void (*dot_words)(const uint8_t* bytes, const int16_t* pair, float* out[3]);
  void (*to_i16)(const float* in, int64_t count, int16_t* out);
};

}  // namespace headrace
