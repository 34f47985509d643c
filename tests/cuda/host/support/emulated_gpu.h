#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "block_runner.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/support/fake_cuda_api.h"

namespace headrace::cuda {

/// While it lives, an emulated kernel that waits for another device lets all of them run.
class RunsDevices {
 public:
  explicit RunsDevices(FakeCudaApi& api) {
    emulation::set_pause_outside([&api] { api.run_all(); });
  }
  ~RunsDevices() { emulation::set_pause_outside({}); }
  RunsDevices(const RunsDevices&) = delete;
  RunsDevices& operator=(const RunsDevices&) = delete;
};

/// The CUDA backend as it is, on a fake runtime with emulated kernels. The backend, and all that
/// lives on it, goes before the GPU.
struct EmulatedGpu {
  bool record_steps = true;
  bool plain_kernels = false;
  bool try_kernels = false;  ///< takes seconds in the emulation
  std::string trials_folder{};
  bool use_peers = true;
  std::string nccl{};
  FakeCudaApi api{};
  RunsDevices runs_devices{api};

  std::shared_ptr<CudaBackend> backend(DType storage, size_t memory_limit = 0, int32_t device = 0) {
    return std::make_shared<CudaBackend>(api, CudaBackendOptions{.device = device,
                                                                 .storage = storage,
                                                                 .memory_limit = memory_limit,
                                                                 .record_steps = record_steps,
                                                                 .try_kernels = try_kernels,
                                                                 .trials_folder = trials_folder,
                                                                 .plain_kernels = plain_kernels,
                                                                 .use_peers = use_peers,
                                                                 .nccl = nccl});
  }
};

}  // namespace headrace::cuda
