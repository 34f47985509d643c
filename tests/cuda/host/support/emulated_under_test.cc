#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/gpu_under_test.h"

namespace headrace {

std::shared_ptr<Backend> make_gpu_under_test(DType storage, bool plain) {
  struct Machine {
    cuda::EmulatedGpu gpu;
    std::shared_ptr<Backend> backend;
  };
  auto machine = std::make_shared<Machine>();
  machine->gpu.plain_kernels = plain;
  machine->backend = machine->gpu.backend(storage);
  return {machine, machine->backend.get()};
}

}  // namespace headrace
