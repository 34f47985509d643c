#pragma once

// Functions written once over the vocabulary. Included by simd.h.

namespace headrace::HEADRACE_ISA {
namespace {

HEADRACE_SIMD_INLINE F32 exp(F32 x) {
  // x = n ln2 + r with |r| <= ln2 / 2; ln2 is split so that n times its upper part is exact. Then
  // e^r = 1 + r + r^2 p(r), p fitted to a relative error of 2^-34 on that interval.
  const F32 n = round(mul(x, set1(0x1.715476p+0f)));
  F32 r = fma(n, set1(-0x1.62e4p-1f), x);
  r = fma(n, set1(-0x1.7f7d1cp-20f), r);
  F32 p = set1(0x1.9f0864p-13f);
  p = fma(p, r, set1(0x1.6d8d52p-10f));
  p = fma(p, r, set1(0x1.111272p-7f));
  p = fma(p, r, set1(0x1.55548ep-5f));
  p = fma(p, r, set1(0x1.555554p-3f));
  p = fma(p, r, set1(0.5f));
  p = fma(mul(r, r), p, add(r, set1(1.0f)));
  F32 y = scale_by_power_of_two(p, n);
  y = select_greater(set1(-87.33654f), x, zero(), y);
  y = select_greater(x, set1(88.72284f), set1(__builtin_inff()), y);
  return y;
}

/// What a softmax asks for: x <= 127.
HEADRACE_SIMD_INLINE F32 exp2(F32 x) {
  x = max(set1(-200.0f), x);
  const F32 n = round(x);
  const F32 r = sub(x, n);
  // 2^r = 1 + r p(r), fitted to a relative error of 2^-28 on [-1/2, 1/2].
  F32 p = set1(0x1.41fbbcp-13f);
  p = fma(p, r, set1(0x1.5f3e52p-10f));
  p = fma(p, r, set1(0x1.3b2d4cp-7f));
  p = fma(p, r, set1(0x1.c6aee8p-5f));
  p = fma(p, r, set1(0x1.ebfbdcp-3f));
  p = fma(p, r, set1(0x1.62e430p-1f));
  return scale_by_power_of_two(fma(p, r, set1(1.0f)), n);
}

HEADRACE_SIMD_INLINE F32 tanh(F32 x) {
  // x + x^3 p(x^2), p fitted on [0, 0.625] to 2^-32 of the result.
  const F32 z = mul(x, x);
  F32 p = set1(0x1.18e1dcp-9f);
  p = fma(p, z, set1(-0x1.0bf4fcp-7f));
  p = fma(p, z, set1(0x1.638b58p-6f));
  p = fma(p, z, set1(-0x1.b9ee90p-5f));
  p = fma(p, z, set1(0x1.111066p-3f));
  p = fma(p, z, set1(-0x1.555554p-2f));
  const F32 near = fma(mul(x, z), p, x);
  // Further out 1 - 2 / (e^(2|x|) + 1), which loses nothing any more.
  const F32 size = max(sub(zero(), x), x);
  const F32 far = sub(set1(1.0f), div(set1(2.0f), add(exp(add(size, size)), set1(1.0f))));
  const F32 with_sign = select_greater(zero(), x, sub(zero(), far), far);
  return select_greater(set1(0.625f), size, near, with_sign);
}

/// x * sigmoid(x).
HEADRACE_SIMD_INLINE F32 silu(F32 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

}  // namespace
}  // namespace headrace::HEADRACE_ISA
