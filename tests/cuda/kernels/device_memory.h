#pragma once

// Where the kernels' tests run: defined by emulated_support.cc or gpu_support.cc.

#include <cstddef>
#include <memory>

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)
inline constexpr int kDeviceSchedules = 3;
#else
inline constexpr int kDeviceSchedules = 1;
#endif

/// Bytes of 0xff (NaN) that kernels and tests both see, aligned to 256.
std::shared_ptr<char> allocate_device(size_t bytes);

/// Of compute capability 9.0?
bool device_has_wgmma();

/// In which order emulated threads run: forward, backward, shuffled.
void set_device_schedule(int schedule);

}  // namespace headrace::cuda
