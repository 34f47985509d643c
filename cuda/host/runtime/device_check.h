#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/runtime/cuda_api.h"
#include "headrace/gpu.h"

namespace headrace::cuda {

inline constexpr int kMinMajor = 8;  ///< compute capability 8.0: Ampere

/// Throws Error(kUnsupported) saying what is missing, and what to do, unless `device` can be used:
/// no driver, a driver older than this build's CUDA, no GPU, no GPU of that number, one below
/// compute capability 8.0, one that this build has no kernels for. Makes it the calling thread's.
DeviceProperties require_device(CudaApi& api, int32_t device);

/// The GPUs that the driver shows, each with why require_device() refuses it. Throws
/// Error(kUnsupported) for no driver, one too old, no GPU. The thread's GPU is another one then.
std::vector<GpuInfo> list_devices(CudaApi& api);

}  // namespace headrace::cuda
