#include "cuda/kernels/elementwise/activate.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace headrace::cuda {
namespace {

struct Silu {
  __device__ float operator()(float x, float) const { return sigmoid_times(x, x); }
};

struct GeluErf {
  __device__ float operator()(float x, float) const { return gelu_erf(x); }
};

struct GeluTanh {
  __device__ float operator()(float x, float) const { return gelu_tanh(x); }
};

struct QuickGelu {
  __device__ float operator()(float x, float) const { return sigmoid_times(x, 1.702f * x); }
};

struct Relu2 {
  __device__ float operator()(float x, float) const { return x < 0.0f ? 0.0f : x * x; }
};

struct Tanh {
  __device__ float operator()(float x, float) const { return tanhf(x); }
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
    case Activation::kRelu2:
      return run(Relu2{});
    case Activation::kTanh:
      return run(Tanh{});
  }
  HEADRACE_CHECK(false, static_cast<int>(args.kind));
}

}  // namespace headrace::cuda
