#include "backend/cuda_plugin.h"

#include "base/check.h"
#include "cuda/host/device_check.h"
#include "cuda/host/runtime_api.h"

namespace headrace::cuda {

namespace {

void require(int32_t device) { require_device(runtime_api(), device); }

std::unique_ptr<Backend> make(const CudaBackendOptions& options) {
  require_device(runtime_api(), options.device);
  throw_error(ErrorCode::kUnsupported, "this version's CUDA backend runs no model yet.");
}

constexpr CudaPlugin kPlugin = {kCudaPluginAbi, HEADRACE_VERSION, require, make};

}  // namespace

}  // namespace headrace::cuda

extern "C" [[gnu::visibility("default")]] const headrace::CudaPlugin* headrace_cuda_plugin() {
  return &headrace::cuda::kPlugin;
}
