#pragma once

// Activation functions, and the gates that GateSpec names: one formula each, in float32, for ops
// and for the epilogues of linears.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// x * sigmoid(y).
__device__ inline float sigmoid_times(float x, float y) { return x / (1.0f + expf(-y)); }

/// log(1 + e^x), also where e^x is too large or too small.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ inline float gelu_erf(float x) { return 0.5f * x * erfcf(-x * 0.70710678118654752f); }

/// (1 + tanh(y)) / 2 is the sigmoid of 2 y.
__device__ inline float gelu_tanh(float x) {
  const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return sigmoid_times(x, 2.0f * inner);
}

struct SiluGate {
  __device__ float operator()(float gate, float up) const { return sigmoid_times(gate, gate) * up; }
};

struct ScaledSiluGate {
  float factor;

  __device__ float operator()(float gate, float up) const {
    const float g = factor * gate;
    return sigmoid_times(g, g) * up;
  }
};

struct GeluErfGate {
  __device__ float operator()(float gate, float up) const { return gelu_erf(gate) * up; }
};

struct GeluTanhGate {
  __device__ float operator()(float gate, float up) const { return gelu_tanh(gate) * up; }
};

/// Comparisons keep NaN, which fminf() would drop.
struct ClampedGate {
  float limit, alpha;

  __device__ float operator()(float gate, float up) const {
    const float g = gate > limit ? limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return sigmoid_times(g, alpha * g) * (u + 1.0f);
  }
};

}  // namespace headrace::cuda
