#pragma once

#include <atomic>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

/// What happens before a GPU loads a kernel, at its first launch on `stream`; null: nothing. CUDA
/// may wait for the GPU then.
using BeforeLoading = void (*)(int device, Stream stream);
inline std::atomic<BeforeLoading> before_loading{nullptr};

}  // namespace headrace::cuda
