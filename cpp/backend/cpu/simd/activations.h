#pragma once

// Activation functions, written over the vocabulary: for towers, and for the gates of MLPs.

#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// x * sigmoid(y).
HEADRACE_SIMD_INLINE F32 times_sigmoid(F32 x, F32 y) {
  return div(x, add(set1(1.0f), exp(sub(zero(), y))));
}

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
