#include "cuda/kernels/launch.cuh"

#if !defined(HEADRACE_CUDA_EMULATION)

#include <map>
#include <mutex>
#include <shared_mutex>

#include "cuda/kernels/loading.h"

namespace headrace::cuda {

namespace {

struct PreparedKernels {
  std::shared_mutex mutex;
  std::map<std::pair<int, const void*>, LaunchedKernel> kernels;  // by device
};

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, name, device) == cudaSuccess ? value : 0;
}

/// CUDA loads a kernel at its first use, may wait for the GPU then, and may keep other threads from
/// launching what this GPU's work waits for: that ends first, outside of the call.
void wait_outside(int device, Stream stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) return;
  if (capture != cudaStreamCaptureStatusNone) return;
  static_cast<void>(cudaStreamSynchronize(stream));
  const BeforeLoading more = before_loading.load();
  if (more != nullptr) more(device, stream);
}

bool prepare(const void* kernel, int device) {
  cudaFuncAttributes found{};
  if (cudaFuncGetAttributes(&found, kernel) != cudaSuccess) return false;
  const int most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) -
                   static_cast<int>(found.sharedSizeBytes);
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
             cudaSuccess &&
         cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared) == cudaSuccess;
}

}  // namespace

LaunchedKernel prepare_kernel(const void* kernel, Stream stream) {
  constexpr int kHopper = 9;
  static PreparedKernels prepared;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return {};
  {
    const std::shared_lock lock(prepared.mutex);
    const auto at = prepared.kernels.find({device, kernel});
    if (at != prepared.kernels.end()) return at->second;
  }
  wait_outside(device, stream);
  const LaunchedKernel found{attribute(cudaDevAttrComputeCapabilityMajor, device) >= kHopper};
  if (!prepare(kernel, device)) return found;  // tried again by the next launch
  const std::unique_lock lock(prepared.mutex);
  return prepared.kernels.emplace(std::pair(device, kernel), found).first->second;
}

}  // namespace headrace::cuda

#endif
