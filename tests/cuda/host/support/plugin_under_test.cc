#include "backend/cuda_plugin.h"
#include "cuda/host/support/gpu_under_test.h"

namespace headrace {

std::shared_ptr<Backend> make_gpu_under_test(DType storage, bool plain) {
  return load_cuda_plugin(HEADRACE_CUDA_PLUGIN)
      .make_backend({.storage = storage, .plain_kernels = plain});
}

}  // namespace headrace
