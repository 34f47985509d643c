#include "backend/cuda_plugin.h"

#include "backend/cuda_interface.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/runtime/device_check.h"
#include "cuda/host/runtime/runtime_api.h"

namespace headrace::cuda {

namespace {

void require(int32_t device) { require_device(runtime_api(), device); }

std::unique_ptr<Backend> make(const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(runtime_api(), options);
}

std::vector<GpuInfo> list() { return list_devices(runtime_api()); }

constexpr CudaPlugin kPlugin = {kCudaInterface, HEADRACE_VERSION, require, make, list};

}  // namespace

}  // namespace headrace::cuda

extern "C" [[gnu::visibility("default")]] const headrace::CudaPlugin* headrace_cuda_plugin() {
  return &headrace::cuda::kPlugin;
}
