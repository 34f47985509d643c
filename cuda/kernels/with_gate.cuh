#pragma once

// From a GateSpec to the type of its gate, in device code: loops are compiled for each.

#include "backend/contract/activation.h"
#include "cuda/device/gates.cuh"

namespace headrace::cuda {

/// Calls f(a gate of gates.cuh): all threads the same, for all that f does.
template <class F>
__device__ inline void with_gate(const GateSpec& spec, const F& f) {
  if (spec.limit > 0.0f) return f(ClampedGate{spec.limit, spec.alpha});
  if (spec.activation == Activation::kGeluTanh) return f(GeluTanhGate{});
  if (spec.activation == Activation::kGeluErf) return f(GeluErfGate{});
  if (spec.factor != 1.0f) return f(ScaledSiluGate{spec.factor});
  f(SiluGate{});
}

}  // namespace headrace::cuda
