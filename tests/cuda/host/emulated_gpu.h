#pragma once

#include <cstdint>
#include <memory>

#include "cuda/host/cuda_backend.h"
#include "cuda/host/fake_cuda_api.h"

namespace headrace::cuda {

/// The CUDA backend as it is, on a fake runtime with emulated kernels. The backend, and all that
/// lives on it, goes before the GPU.
struct EmulatedGpu {
  bool record_steps = true;
  bool plain_kernels = false;
  bool try_kernels = false;  ///< takes seconds in the emulation
  FakeCudaApi api{};

  std::shared_ptr<CudaBackend> backend(DType storage, size_t memory_limit = 0) {
    return std::make_shared<CudaBackend>(api, CudaBackendOptions{.storage = storage,
                                                                 .memory_limit = memory_limit,
                                                                 .record_steps = record_steps,
                                                                 .try_kernels = try_kernels,
                                                                 .plain_kernels = plain_kernels});
  }
};

}  // namespace headrace::cuda
