#pragma once

#include <memory>

#include "backend/contract/backend.h"

namespace headrace {

/// A CUDA backend to test. In CI: the host side as it is on a fake runtime, with emulated kernels
/// (emulated_under_test.cc). In tests/gpu/run.sh: the plug-in on the machine's first GPU
/// (plugin_under_test.cc). `plain`: see CudaBackendOptions::plain_kernels.
std::shared_ptr<Backend> make_gpu_under_test(DType storage, bool plain = false);

}  // namespace headrace
