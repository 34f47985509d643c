#pragma once

// Functions written once over the vocabulary. Included by simd.h.

namespace headrace::HEADRACE_ISA {
namespace {

HEADRACE_SIMD_INLINE F32 exp(F32 x) {
  // x = n ln2 + r with |r| <= ln2 / 2; e^r by its Taylor-like minimax polynomial; scaled by 2^n in
  // two steps so that results near the overflow threshold stay finite.
  const F32 n = round(mul(x, set1(1.44269504088896341f)));
  F32 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F32 p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, set1(1.0f)));
  F32 y = scale_by_power_of_two(p, n);
  y = select_greater(set1(-87.33654f), x, zero(), y);
  y = select_greater(x, set1(88.72284f), set1(__builtin_inff()), y);
  return y;
}

/// x * sigmoid(x).
HEADRACE_SIMD_INLINE F32 silu(F32 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

}  // namespace
}  // namespace headrace::HEADRACE_ISA
