#include "backend/cpu/simd/activations.h"
#include "backend/cpu/simd/row_loops.h"
#include "backend/cpu/vision/vision_row_kernels.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

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
void relu2_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return relu2(v); });
}

void tanh_row(float* x, int64_t n) {
  apply(x, n, [](F32 v) { return tanh(v); });
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
const VisionRowKernels kVisionRowKernels = {silu_row,  gelu_erf_row, gelu_tanh_row, quick_gelu_row,
                                            relu2_row, tanh_row,     rotate};

}  // namespace headrace::HEADRACE_ISA
