#pragma once

// Activation functions, written over the vocabulary: for towers, and for the gates of MLPs.

#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// x * sigmoid(y).
HEADRACE_SIMD_INLINE F32 times_sigmoid(F32 x, F32 y) {
  return div(x, add(set1(1.0f), exp(sub(zero(), y))));
}

/// log(1 + e^x).
HEADRACE_SIMD_INLINE F32 softplus(F32 x) {
  // With y = e^-|x| in [0, 1]: max(x, 0) + log(1 + y), where log(1 + y) = 2 artanh(s) with
  // s = y / (2 + y) <= 1/3, whose series ends at s^15: what is left out is below 2^-29 of it.
  const F32 y = exp(min(sub(zero(), x), x));
  const F32 s = div(y, add(set1(2.0f), y));
  const F32 z = mul(s, s);
  F32 p = set1(2.0f / 15.0f);
  p = fma(p, z, set1(2.0f / 13.0f));
  p = fma(p, z, set1(2.0f / 11.0f));
  p = fma(p, z, set1(2.0f / 9.0f));
  p = fma(p, z, set1(2.0f / 7.0f));
  p = fma(p, z, set1(2.0f / 5.0f));
  p = fma(p, z, set1(2.0f / 3.0f));
  p = fma(p, z, set1(2.0f));
  return fma(s, p, max(zero(), x));
}

/// Comparisons keep NaN: a maximum may drop it.
HEADRACE_SIMD_INLINE F32 relu2(F32 x) { return select_greater(zero(), x, zero(), mul(x, x)); }

/// The probability that a normal variable exceeds y >= 0.
HEADRACE_SIMD_INLINE F32 normal_tail(F32 y) {
  // 2^-p(y); p is fitted on [0, 6] so that the result is off by 2^-27 at most, and grows from
  // there on.
  F32 p = set1(0x1.741024p-19f);
  p = fma(p, y, set1(-0x1.43fa56p-15f));
  p = fma(p, y, set1(0x1.7ed592p-13f));
  p = fma(p, y, set1(0x1.31e6dap-13f));
  p = fma(p, y, set1(-0x1.cfb29cp-8f));
  p = fma(p, y, set1(0x1.ae1f04p-5f));
  p = fma(p, y, set1(0x1.d639d0p-2f));
  p = fma(p, y, set1(0x1.26aedep+0f));
  p = fma(p, y, set1(1.0f));
  return exp2(sub(zero(), p));
}

HEADRACE_SIMD_INLINE F32 gelu(F32 x) {
  const F32 minus = sub(zero(), x);
  const F32 tail = normal_tail(max(minus, x));
  return mul(x, select_greater(zero(), x, tail, sub(set1(1.0f), tail)));
}

HEADRACE_SIMD_INLINE F32 tanh_gelu(F32 x) {
  // (1 + tanh(y)) / 2 is the sigmoid of 2 y.
  const F32 cubic =
      fma(mul(x, x), set1(2.0f * 0.7978845608f * 0.044715f), set1(2.0f * 0.7978845608f));
  return times_sigmoid(x, mul(x, cubic));
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
