#pragma once

// What a kernel's launch function needs of the host side. Plain C++: no CUDA header, so that
// launchers' headers serve g++ and nvcc alike.

struct CUstream_st;

namespace headrace::cuda {

/// cudaStream_t.
using Stream = CUstream_st*;

/// Call right behind a launch. Throws Error(kDevice) naming `kernel` if it was refused (a wrong
/// configuration, a device that is lost); failures while it runs show at the next wait.
void check_launch(const char* kernel);

}  // namespace headrace::cuda
