#include "backend/cpu/kernels_sample.h"

#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {

extern const SampleKernels kSampleKernels;
const SampleKernels kSampleKernels = {kLanes};

}  // namespace headrace::HEADRACE_ISA
