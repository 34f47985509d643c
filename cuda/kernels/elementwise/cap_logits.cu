#include "cuda/kernels/elementwise/cap_logits.h"

#include "cuda/kernels/elementwise/elementwise.cuh"

namespace headrace::cuda {
namespace {

struct Factor {
  float factor;
  __device__ float operator()(float x, float) const { return x * factor; }
};

struct Cap {
  float factor, cap;
  __device__ float operator()(float x, float) const { return cap * tanhf(x * factor / cap); }
};

}  // namespace

void cap_logits(const CapLogitsArgs& args, Stream stream) {
  const auto run = [&](auto f) {
    elementwise("cap_logits", DType::kF32, args.logits, {}, f, stream);
  };
  if (args.cap > 0.0f) return run(Cap{args.factor, args.cap});
  run(Factor{args.factor});
}

}  // namespace headrace::cuda
