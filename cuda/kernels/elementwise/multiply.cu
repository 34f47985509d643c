#include "cuda/kernels/elementwise/multiply.h"

#include "cuda/kernels/elementwise/elementwise.cuh"

namespace headrace::cuda {
namespace {

struct Multiply {
  __device__ float operator()(float a, float b) const { return a * b; }
};

}  // namespace

void multiply(const MultiplyArgs& args, Stream stream) {
  for (const ConstMatrix& x : {args.a, args.b}) {
    HEADRACE_CHECK(x.rows == args.out.rows && x.cols == args.out.cols, x.rows, " x ", x.cols);
  }
  elementwise("multiply", args.dtype, args.out, args.a, args.b, Multiply{}, stream);
}

}  // namespace headrace::cuda
