#pragma once

// What GateSpec asks for, one type for each kind, so that loops are compiled for each.

#include "backend/contract/activation.h"
#include "backend/cpu/simd/activations.h"

namespace headrace::HEADRACE_ISA {
namespace {

struct SiluGate {
  HEADRACE_SIMD_INLINE F32 operator()(F32 gate, F32 up) const { return mul(silu(gate), up); }
};

struct ScaledSiluGate {
  F32 factor;

  HEADRACE_SIMD_INLINE F32 operator()(F32 gate, F32 up) const {
    return mul(silu(mul(gate, factor)), up);
  }
};

struct GeluErfGate {
  HEADRACE_SIMD_INLINE F32 operator()(F32 gate, F32 up) const { return mul(gelu(gate), up); }
};

struct GeluTanhGate {
  HEADRACE_SIMD_INLINE F32 operator()(F32 gate, F32 up) const { return mul(tanh_gelu(gate), up); }
};

struct ClampedGate {
  F32 limit, alpha;

  HEADRACE_SIMD_INLINE F32 operator()(F32 gate, F32 up) const {
    const F32 g = min(limit, gate);
    const F32 u = max(sub(zero(), limit), min(limit, up));
    return mul(times_sigmoid(g, mul(g, alpha)), add(u, set1(1.0f)));
  }
};

/// Calls f(one of these).
template <class F>
HEADRACE_SIMD_INLINE void with_gate(const GateSpec& spec, const F& f) {
  if (spec.limit > 0.0f) return f(ClampedGate{set1(spec.limit), set1(spec.alpha)});
  if (spec.activation == Activation::kGeluTanh) return f(GeluTanhGate{});
  if (spec.activation == Activation::kGeluErf) return f(GeluErfGate{});
  if (spec.factor != 1.0f) return f(ScaledSiluGate{set1(spec.factor)});
  f(SiluGate{});
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
