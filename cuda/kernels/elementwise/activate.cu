#include "cuda/kernels/elementwise/activate.h"

#include "cuda/kernels/elementwise/elementwise.cuh"

namespace headrace::cuda {
namespace {

__device__ inline float sigmoid_times(float x, float y) { return x / (1.0f + expf(-y)); }

struct Silu {
  __device__ float operator()(float x, float) const { return sigmoid_times(x, x); }
};

struct GeluErf {
  __device__ float operator()(float x, float) const {
    return 0.5f * x * erfcf(-x * 0.70710678118654752f);
  }
};

/// (1 + tanh(y)) / 2 is the sigmoid of 2 y.
struct GeluTanh {
  __device__ float operator()(float x, float) const {
    const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return sigmoid_times(x, 2.0f * inner);
  }
};

struct QuickGelu {
  __device__ float operator()(float x, float) const { return sigmoid_times(x, 1.702f * x); }
};

}  // namespace

void activate(const ActivateArgs& args, Stream stream) {
  const auto run = [&](auto f) { elementwise("activate", args.dtype, args.x, {}, f, stream); };
  switch (args.kind) {
    case Activation::kSilu:
      return run(Silu{});
    case Activation::kGeluErf:
      return run(GeluErf{});
    case Activation::kGeluTanh:
      return run(GeluTanh{});
    case Activation::kQuickGelu:
      return run(QuickGelu{});
  }
  HEADRACE_CHECK(false, static_cast<int>(args.kind));
}

}  // namespace headrace::cuda
