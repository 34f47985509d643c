#pragma once

// The CUDA backend lives in a shared library of its own, libheadrace_cuda.so, so that one build of
// Headrace runs on machines without a GPU or its driver. It is loaded by the first call that asks
// for it, from beside the library that holds this code, and stays loaded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "headrace/gpu.h"

namespace headrace {

struct CudaBackendOptions {
  int32_t device = 0;           ///< CUDA's number of the GPU
  DType storage = DType::kF32;  ///< of the one model's weights, hence of its activations
  size_t memory_limit = 0;      ///< bound on what the backend takes from the GPU; 0 = none
  bool record_steps = true;     ///< decode steps become CUDA graphs
  bool try_kernels = true;      ///< on small problems, before the GPU is trusted with them
  /// Where GPUs that have passed are remembered, see TrialRecord; "": nowhere.
  std::string trials_folder{};
  /// No kernels for one generation of GPUs alone: slower, the same bits, to find what is wrong with
  /// one.
  bool plain_kernels = false;
  /// GPUs of one model that reach each other's memory do so; false: they meet by NCCL, as those
  /// that don't.
  bool use_peers = true;
  /// NCCL's library; "": from its package beside this one, else where the system has it.
  std::string nccl{};
};

inline constexpr const char* kCudaPluginEntry = "headrace_cuda_plugin";

/// What the plug-in offers; static. The first two fields never move.
struct CudaPlugin {
  /// kCudaInterface of the plug-in's build (backend/cuda_interface.h, made by the build): a hash of
  /// this header and of all that it includes.
  uint64_t interface = 0;
  const char* version = nullptr;  ///< of Headrace
  /// Throws Error(kUnsupported) saying why that GPU can't be used: no driver, one too old, no such
  /// GPU, one that is too old or that this build has no kernels for.
  void (*require_device)(int32_t device) = nullptr;
  /// Throws what require_device throws, and Error(kDevice).
  std::unique_ptr<Backend> (*make_backend)(const CudaBackendOptions& options) = nullptr;
  /// Those that the driver shows, whether they can be used or not. Throws Error(kUnsupported) for
  /// no driver, one too old, no GPU.
  std::vector<GpuInfo> (*list_devices)() = nullptr;
};

/// Type of the plug-in's only export.
using CudaPluginEntry = const CudaPlugin* (*)();

/// Whether the system shows an NVIDIA GPU: by a device file, or by the driver's list. `root`: of
/// the file system.
bool has_nvidia_gpu(const std::string& root = "/");

/// Where the plug-in belongs: beside the library or program that holds this code.
std::string cuda_plugin_path();

/// Loads the plug-in. Throws Error(kUnsupported) if there is none at `path`, if it can't be loaded,
/// or if it belongs to another build of Headrace.
const CudaPlugin& load_cuda_plugin(const std::string& path);

}  // namespace headrace
