#pragma once

// Sampling kernels of one ISA. Only types from C headers here, see kernels_linear.h.

namespace headrace {

struct SampleKernels {
  int lanes;
};

}  // namespace headrace
