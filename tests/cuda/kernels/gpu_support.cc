// The kernels' tests on a GPU. Every launch is waited for, so that tests read what it wrote.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "cuda/host/runtime/cuda_check.h"
#include "device_memory.h"

namespace headrace::cuda {

namespace {

/// Of a thread whose kernels wait for those of other threads: the device as a whole must not be
/// waited for there.
thread_local cudaStream_t own_stream = nullptr;

}  // namespace

void check_launch(const char* kernel) {
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) {
    status = own_stream == nullptr ? cudaDeviceSynchronize() : cudaStreamSynchronize(own_stream);
  }
  HEADRACE_CHECK(status == cudaSuccess, kernel, ": ", cudaGetErrorString(status));
}

std::shared_ptr<char> allocate_device(size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes == 0 ? 1 : bytes) != cudaSuccess) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes);
  return {static_cast<char*>(memory), [](char* p) { cudaFreeHost(p); }};
}

bool device_has_wgmma() {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major == 9;
}

std::shared_ptr<CUstream_st> make_stream() {
  cudaStream_t stream = nullptr;
  const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  HEADRACE_CHECK(status == cudaSuccess, cudaGetErrorString(status));
  own_stream = stream;
  return {stream, [](cudaStream_t made) {
            own_stream = nullptr;
            cudaStreamDestroy(made);
          }};
}

void set_device_schedule(int) {}

namespace {

/// Without a GPU nothing here can run: visibly skipped, or, if one was promised, an error.
class NeedsGpu : public testing::Environment {
 public:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
    if (std::getenv("HEADRACE_REQUIRE_CUDA") != nullptr) FAIL() << "no CUDA device";
    GTEST_SKIP() << "no CUDA device";
  }
};

const auto* const needs_gpu = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
}  // namespace headrace::cuda
