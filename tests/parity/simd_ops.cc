#include "parity/simd_ops.h"

#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

void exp_all(const float* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) store(out + i, exp(load(in + i)));
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

}  // namespace

extern const SimdOps kSimdOps;
const SimdOps kSimdOps = {kLanes,     exp_all, to_bf16_all, to_f16_all, from_bf16_all, from_f16_all,
                          split_bf16, sum_of,  max_of,      greater,    copy_part};

}  // namespace headrace::HEADRACE_ISA
