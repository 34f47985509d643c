#pragma once

// Where the kernels' tests run: defined by emulated_support.cc or gpu_support.cc.

#include <cstddef>
#include <memory>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)
inline constexpr int kDeviceSchedules = 4;
#else
inline constexpr int kDeviceSchedules = 1;
#endif

/// Bytes of 0xff (NaN) that kernels and tests both see, aligned to 256.
std::shared_ptr<char> allocate_device(size_t bytes);

/// Of compute capability 9.0?
bool device_has_wgmma();

/// The calling thread's stream, where its kernels wait for other threads' ones. One at a time,
/// given back by that thread. Null where launches are calls.
std::shared_ptr<CUstream_st> make_stream();

/// In which order emulated threads run: forward, backward, kWarpsAhead (a warp goes as far as it
/// can before the next one begins), shuffled.
inline constexpr int kWarpsAhead = 2;
void set_device_schedule(int schedule);

}  // namespace headrace::cuda
