#pragma once

#include "cuda/host/runtime/cuda_api.h"

namespace headrace::cuda {

/// The CUDA runtime itself. Stateless; lives as long as the process.
CudaApi& runtime_api();

}  // namespace headrace::cuda
