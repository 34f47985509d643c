#include "backend/cuda_plugin.h"

extern "C" [[gnu::visibility("default")]] const headrace::CudaPlugin* headrace_cuda_plugin() {
  static constexpr headrace::CudaPlugin plugin = {.interface = 0xabc, .version = HEADRACE_VERSION};
  return &plugin;
}
