#include "backend/cuda_plugin.h"
#include "headrace/gpu.h"

namespace headrace {

std::vector<GpuInfo> v0::describe_gpus() {
  return load_cuda_plugin(cuda_plugin_path()).list_devices();
}

}  // namespace headrace
