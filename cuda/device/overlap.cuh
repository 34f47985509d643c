#pragma once

// Kernels that start while the one before them on the stream ends (programmatic dependent launch,
// sm_90; LaunchShape::overlaps). Elsewhere, and in the emulation, they follow one another.

#include "cuda/device/platform.cuh"

namespace headrace::cuda {

/// Waits until all earlier kernels of the stream are over and what they wrote is there. Every
/// thread that reads or writes memory which another kernel writes or reads calls it before, and
/// each block at least once. Ahead of it: the kernel's own shared memory, and what is constant
/// (weights).
__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start, if it overlaps, once every block has called this or is over. Its
/// blocks take the multiprocessors' free shared memory, registers and threads from then on: a
/// kernel that waits for another GPU calls it behind that (await_peer; the emulation sees to it).
__device__ inline void start_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#elif defined(HEADRACE_CUDA_EMULATION)
  emulation::start_next();
#endif
}

}  // namespace headrace::cuda
