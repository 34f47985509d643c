#pragma once

// How emulated kernels meet the fake CUDA runtime's streams: a launch function of the emulation
// copies its arguments, as CUDA does, and hands the whole grid over.

#include <functional>

#include "cuda/host/cuda_check.h"

namespace headrace::cuda {

/// Runs `work` now, or, while `stream` is being captured, records it into the graph, which runs it
/// at every replay. Defined by the fake runtime (tests/cuda/fake_cuda_api.cc).
void submit(Stream stream, std::function<void()> work);

}  // namespace headrace::cuda
