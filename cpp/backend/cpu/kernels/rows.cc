#include "backend/cpu/kernels_rows.h"

#include "backend/cpu/simd/gates.h"
#include "backend/cpu/simd/row_loops.h"
#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

/// 1 / sqrt(mean(x^2) + eps) after x[i] = value(i, count) has been stored by `value`.
template <class Value>
HEADRACE_SIMD_INLINE F32 inverse_rms(int64_t n, float eps, const Value& value) {
  const float sum = sum_of(n, [&value](int64_t i, int count, F32 acc) {
    const F32 x = value(i, count);
    return fma(x, x, acc);
  });
  const F32 mean = div(set1(sum), set1(static_cast<float>(n)));
  return div(set1(1.0f), sqrt(add(mean, set1(eps))));
}

HEADRACE_SIMD_INLINE void scale(const float* x, const float* weight, F32 factor, int64_t n,
                                float* out) {
  if (weight == nullptr) {
    for_vectors(n, [&](int64_t i, int count) {
      store_up_to(out + i, mul(load_up_to(x + i, count), factor), count);
    });
    return;
  }
  for_vectors(n, [&](int64_t i, int count) {
    const F32 y = mul(mul(load_up_to(x + i, count), factor), load_up_to(weight + i, count));
    store_up_to(out + i, y, count);
  });
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const F32 factor =
      inverse_rms(n, eps, [x](int64_t i, int count) { return load_up_to(x + i, count); });
  scale(x, weight, factor, n, out);
}

void add_rms_norm(float* residual, const float* delta, const float* weight, float eps, int64_t n,
                  float* out) {
  const F32 factor = inverse_rms(n, eps, [residual, delta](int64_t i, int count) {
    const F32 sum = add(load_up_to(residual + i, count), load_up_to(delta + i, count));
    store_up_to(residual + i, sum, count);
    return sum;
  });
  scale(residual, weight, factor, n, out);
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
  const auto scaled = [&](int64_t i, int count) {
    return mul(sub(load_up_to(x + i, count), mean), factor);
  };
  if (bias == nullptr) {
    for_vectors(n, [&](int64_t i, int count) {
      store_up_to(out + i, mul(scaled(i, count), load_up_to(weight + i, count)), count);
    });
    return;
  }
  for_vectors(n, [&](int64_t i, int count) {
    const F32 scale = load_up_to(weight + i, count), shift = load_up_to(bias + i, count);
    store_up_to(out + i, fma(scaled(i, count), scale, shift), count);
  });
}

void gate_mul(const GateSpec& spec, const float* gate, const float* up, int64_t n, float* out) {
  with_gate(spec, [&](const auto& gate_of) {
    for_vectors(n, [&](int64_t i, int count) {
      const F32 y = gate_of(load_up_to(gate + i, count), load_up_to(up + i, count));
      store_up_to(out + i, y, count);
    });
  });
}

void add_row(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int count = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    store_up_to(out + i, add(load_up_to(out + i, count), load_up_to(x + i, count)), count);
  }
}

float gate_row(const float* x, const float* gate, int64_t n) {
  const float sum = sum_of(n, [x, gate](int64_t i, int count, F32 acc) {
    return fma(load_up_to(x + i, count), load_up_to(gate + i, count), acc);
  });
  const F32 sigmoid = div(set1(1.0f), add(set1(1.0f), exp(set1(-sum))));
  float lanes[kLanes];
  store(lanes, sigmoid);
  return lanes[0];
}

void add_scaled(const float* x, float factor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int count = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    const F32 sum = fma(set1(factor), load_up_to(x + i, count), load_up_to(out + i, count));
    store_up_to(out + i, sum, count);
  }
}

void scale_row(const float* x, float factor, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(out + i, mul(load_up_to(x + i, count), set1(factor)), count);
  });
}

void mul_sigmoid(const float* gate, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    const F32 y = times_sigmoid(load_up_to(out + i, count), load_up_to(gate + i, count));
    store_up_to(out + i, y, count);
  });
}

void cap_row(float* x, float factor, float cap, int64_t n) {
  for_vectors(n, [&](int64_t i, int count) {
    const F32 l = mul(load_up_to(x + i, count), set1(factor));
    store_up_to(x + i, mul(set1(cap), tanh(div(l, set1(cap)))), count);
  });
}

void gated_norm(const float* x, const float* gate, const float* weight, float eps, bool silu_gate,
                bool gate_first, int64_t n, float* out) {
  const auto gated = [gate, silu_gate](const float* from, int64_t i, int count) {
    const F32 y = load_up_to(from + i, count), g = load_up_to(gate + i, count);
    return silu_gate ? mul(y, silu(g)) : times_sigmoid(y, g);
  };
  if (gate_first) {
    const F32 factor = inverse_rms(n, eps, [&](int64_t i, int count) {
      const F32 y = gated(x, i, count);
      store_up_to(out + i, y, count);
      return y;
    });
    return scale(out, weight, factor, n, out);
  }
  rms_norm(x, weight, eps, n, out);
  for_vectors(n, [&](int64_t i, int count) { store_up_to(out + i, gated(out, i, count), count); });
}

void multiply(const float* a, const float* b, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(out + i, mul(load_up_to(a + i, count), load_up_to(b + i, count)), count);
  });
}

template <class Load>
HEADRACE_SIMD_INLINE void widen(const uint16_t* in, int64_t n, float* out, const Load& load16) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load16(in + i));
  if (i == n) return;
  uint16_t last[kLanes] = {};
  for (int64_t j = i; j < n; ++j) last[j - i] = in[j];
  store_part(out + i, load16(last), static_cast<int>(n - i));
}

void from_bf16(const uint16_t* in, int64_t n, float* out) {
  widen(in, n, out, [](const uint16_t* p) { return load_bf16(p); });
}

void from_f16(const uint16_t* in, int64_t n, float* out) {
  widen(in, n, out, [](const uint16_t* p) { return load_f16(p); });
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels = {rms_norm,   add_rms_norm, layer_norm, gate_mul,    add_row,
                                gate_row,   add_scaled,   scale_row,  mul_sigmoid, cap_row,
                                gated_norm, multiply,     from_bf16,  from_f16};

}  // namespace headrace::HEADRACE_ISA
