#pragma once

namespace headrace::cuda {

/// 0 if this build has kernels for the current device, else the cudaError_t that launches would
/// meet.
int probe_kernels();

}  // namespace headrace::cuda
