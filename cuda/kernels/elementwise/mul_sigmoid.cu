#include "cuda/kernels/elementwise/mul_sigmoid.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/elementwise/elementwise.cuh"

namespace headrace::cuda {
namespace {

struct MulSigmoid {
  __device__ float operator()(float out, float gate) const { return sigmoid_times(out, gate); }
};

}  // namespace

void mul_sigmoid(const MulSigmoidArgs& args, Stream stream) {
  HEADRACE_CHECK(args.gate.rows == args.out.rows && args.gate.cols == args.out.cols, args.gate.rows,
                 " x ", args.gate.cols);
  elementwise("mul_sigmoid", args.dtype, args.out, args.gate, MulSigmoid{}, stream);
}

}  // namespace headrace::cuda
