#pragma once

// How emulated kernels meet the fake CUDA runtime's streams: a launch function of the emulation
// copies its arguments, as CUDA does, and hands the whole grid over.

#include <functional>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

/// Runs `work` now, or, while `stream` is being captured, records it into the graph, which runs it
/// at every replay. `kernel`: what is loaded at its first launch, or null. Defined by the fake
/// runtime (tests/cuda/host/support/fake_cuda_api.cc).
void submit(Stream stream, const void* kernel, std::function<void()> work);

}  // namespace headrace::cuda
