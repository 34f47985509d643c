#include "backend/cpu/simd/row_loops.h"
#include "backend/cpu/vision/vision_row_kernels.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

/// Calls body(i, count) for the vectors of n numbers; the last one may have fewer lanes.
template <class Body>
HEADRACE_SIMD_INLINE void for_vectors(int64_t n, const Body& body) {
  for (int64_t i = 0; i < n; i += kLanes) {
    body(i, static_cast<int>(n - i < kLanes ? n - i : kLanes));
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* out) {
  const F32 width = set1(static_cast<float>(n));
  const float sum =
      sum_of(n, [x](int64_t i, int count, F32 acc) { return add(load_up_to(x + i, count), acc); });
  const F32 mean = div(set1(sum), width);
  const float squares = sum_of(n, [x, mean](int64_t i, int count, F32 acc) {
    F32 rest = sub(load_up_to(x + i, count), mean);
    if (count < kLanes) {  // lanes without a number would count as -mean
      float lanes[kLanes];
      store(lanes, rest);
      rest = load_part(lanes, count);
    }
    return fma(rest, rest, acc);
  });
  const F32 variance = div(set1(squares), width);
  const F32 factor = div(set1(1.0f), sqrt(add(variance, set1(eps))));
  for_vectors(n, [&](int64_t i, int count) {
    const F32 scaled = mul(sub(load_up_to(x + i, count), mean), factor);
    store_up_to(out + i, fma(scaled, load_up_to(weight + i, count), load_up_to(bias + i, count)),
                count);
  });
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

/// x * sigmoid(y).
HEADRACE_SIMD_INLINE F32 times_sigmoid(F32 x, F32 y) {
  return div(x, add(set1(1.0f), exp(sub(zero(), y))));
}

HEADRACE_SIMD_INLINE F32 tanh_gelu(F32 x) {
  // (1 + tanh(y)) / 2 is the sigmoid of 2 y.
  const F32 cubic =
      fma(mul(x, x), set1(2.0f * 0.7978845608f * 0.044715f), set1(2.0f * 0.7978845608f));
  return times_sigmoid(x, mul(x, cubic));
}

template <class F>
HEADRACE_SIMD_INLINE void apply(float* x, int64_t n, const F& f) {
  for_vectors(
      n, [&](int64_t i, int count) { store_up_to(x + i, f(load_up_to(x + i, count)), count); });
}

void silu_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return silu(v); });
}
void gelu_erf_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return gelu(v); });
}
void gelu_tanh_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return tanh_gelu(v); });
}
void quick_gelu_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return times_sigmoid(v, mul(v, set1(1.702f))); });
}

void rotate(float* x, const float* table, int32_t heads, int32_t pairs) {
  for (int32_t head = 0; head < heads; ++head, x += 2 * pairs) {
    float* y = x + pairs;
    for_vectors(pairs, [&](int64_t i, int count) {
      const F32 a = load_up_to(x + i, count), b = load_up_to(y + i, count);
      const F32 cosine = load_up_to(table + i, count);
      const F32 sine = load_up_to(table + pairs + i, count);
      store_up_to(x + i, sub(mul(a, cosine), mul(b, sine)), count);
      store_up_to(y + i, add(mul(b, cosine), mul(a, sine)), count);
    });
  }
}

}  // namespace

extern const VisionRowKernels kVisionRowKernels;
const VisionRowKernels kVisionRowKernels = {layer_norm,    silu_row,       gelu_erf_row,
                                            gelu_tanh_row, quick_gelu_row, rotate};

}  // namespace headrace::HEADRACE_ISA
