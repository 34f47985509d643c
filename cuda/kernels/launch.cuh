#pragma once

// Launching a kernel, on a GPU or in the emulation, and run-time values to template constants.

#include <type_traits>
#include <utility>

#include "base/check.h"
#include "cuda/device/numbers.cuh"
#include "cuda/device/overlap.cuh"
#include "cuda/device/platform.cuh"
#include "cuda/host/runtime/cuda_check.h"
#include "tensor/dtype.h"

#if defined(HEADRACE_CUDA_EMULATION)
#include "submit.h"
#endif

namespace headrace::cuda {

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  size_t shared_bytes = 0;
  bool overlaps = false;  ///< the kernel calls wait_for_previous() (overlap.cuh)
  unsigned cluster = 1;   ///< blocks of a cluster, along x; more than 1 on sm_90 alone
};

#if !defined(HEADRACE_CUDA_EMULATION)
/// What a launch needs to know of its kernel.
struct LaunchedKernel {
  bool overlaps = false;  ///< the current device starts kernels before the ones ahead have ended
};

/// The first time a device meets a kernel, waits for the stream and before_loading, and lets the
/// kernel take all of a block's shared memory and the largest share of a multiprocessor's for it:
/// one share for all, since multiprocessors wait for each other to change it. Any thread; an error
/// is left for check_launch().
LaunchedKernel prepare_kernel(const void* kernel, Stream stream);
#endif

/// Runs kernel(args...) on a grid. Throws what check_launch() throws.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape, Stream stream,
            const Args&... args) {
#if defined(HEADRACE_CUDA_EMULATION)
  submit(stream, reinterpret_cast<const void*>(kernel), [=] {
    emulation::run_grid(name,
                        {shape.grid, {shape.threads, 1, 1}, shape.shared_bytes, shape.cluster},
                        [&] { kernel(static_cast<Params>(args)...); });
  });
#else
  const LaunchedKernel prepared = prepare_kernel(reinterpret_cast<const void*>(kernel), stream);
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (shape.overlaps && prepared.overlaps) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  check_launch(name);
#endif
}

/// Calls f(T{}) with the element type of `dtype`: float, Bf16 or F16.
template <class F>
decltype(auto) with_element(DType dtype, F&& f) {
  HEADRACE_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16,
                 dtype_name(dtype));
  if (dtype == DType::kBF16) return f(Bf16{});
  if (dtype == DType::kF16) return f(F16{});
  return f(float{});
}

/// The same without float.
template <class F>
decltype(auto) with_half(DType dtype, F&& f) {
  HEADRACE_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, dtype_name(dtype));
  if (dtype == DType::kBF16) return f(Bf16{});
  return f(F16{});
}

/// Calls f(std::bool_constant<value>{}).
template <class F>
decltype(auto) with_bool(bool value, F&& f) {
  if (value) return f(std::true_type{});
  return f(std::false_type{});
}

template <int kValue>
using Int = std::integral_constant<int, kValue>;

inline unsigned grid_size(int64_t blocks) {
  HEADRACE_CHECK(blocks >= 1 && blocks <= 0x7fffffff, blocks);
  return static_cast<unsigned>(blocks);
}

}  // namespace headrace::cuda
