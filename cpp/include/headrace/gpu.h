#pragma once

// What the CUDA backend finds on this machine.

#include <cstddef>
#include <string>
#include <vector>

#include "headrace/abi.h"

namespace headrace::inline v0 {

struct GpuInfo {
  std::string device;  ///< as ModelOptions::device has it: "cuda:0"
  std::string name;
  std::string compute_capability;  ///< "9.0"
  size_t total_bytes = 0;          ///< of its memory
  std::string unusable;            ///< why this build can't use it; empty: it can
};

/// The GPUs that the NVIDIA driver shows. Throws Error(kUnsupported) if there are none, saying what
/// is missing: the CUDA plug-in, the driver, a GPU.
HEADRACE_API std::vector<GpuInfo> describe_gpus();

}  // namespace headrace::inline v0
