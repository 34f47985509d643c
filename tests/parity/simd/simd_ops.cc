#include "parity/simd/simd_ops.h"

#include "backend/cpu/simd/int8.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

void exp_all(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, exp(load(in + i)));
}
void exp2_all(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, exp2(load(in + i)));
}
void tanh_all(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, tanh(load(in + i)));
}
void to_bf16_all(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_bf16(out + i, load(in + i));
}
void to_f16_all(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_f16(out + i, load(in + i));
}
void from_bf16_all(const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, load_bf16(in + i));
}
void from_f16_all(const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, load_f16(in + i));
}
void split_bf16(const uint16_t* in, float* even, float* odd) {
  store(even, load_bf16_even(in));
  store(odd, load_bf16_odd(in));
}
float sum_of(const float* lanes) { return reduce_add(load(lanes)); }
float max_of(const float* lanes) { return reduce_max(load(lanes)); }
uint32_t greater(const float* a, const float* b) { return greater_mask(load(a), load(b)); }
float copy_part(const float* in, int n, float* out) {
  const F32 v = load_part(in, n);
  store_part(out, v, n);
  return reduce_add(v);
}
void transpose_all(const float* in, float* out) {
  F32 rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = load(in + i * kLanes);
  transpose(rows);
  for (int i = 0; i < kLanes; ++i) store(out + i * kLanes, rows[i]);
}

void dot_words_of(const uint8_t* bytes, const int16_t* pair, float* out[3]) {
  const Words x = broadcast_words(pair), wide = load_u8_pairs(bytes);
  store(out[0], to_f32(dot_words(load_i8_pairs(bytes), x, set1_i32(0))));
  store(out[1], to_f32(dot_words(nibbles(wide, 0), x, set1_i32(0))));
  store(out[2], to_f32(dot_words(nibbles(wide, 4), x, set1_i32(0))));
}
void to_i16_all(const float* in, int64_t count, int16_t* out) {
  for (int64_t i = 0; i < count; i += kLanes) store_i16(out + i, to_i32(load(in + i)));
}

}  // namespace

extern const SimdOps kSimdOps;
const SimdOps kSimdOps = {kLanes,      exp_all,       exp2_all,      tanh_all,
                          to_bf16_all, to_f16_all,    from_bf16_all, from_f16_all,
                          split_bf16,  sum_of,        max_of,        greater,
                          copy_part,   transpose_all, dot_words_of,  to_i16_all};

}  // namespace headrace::HEADRACE_ISA
