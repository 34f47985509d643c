#pragma once

// Which backend a model runs on.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/contract/backend.h"
#include "base/check.h"
#include "base/log.h"
#include "engine/load/loaded_model.h"
#include "headrace/options.h"

namespace headrace::internal {

/// What ModelOptions::device names.
struct DeviceName {
  enum class Kind : uint8_t { kAuto, kCpu, kCpuNuma, kCuda };
  Kind kind = Kind::kAuto;
  int32_t number = 0;  ///< of the GPU, or of the CPU's rank
};

/// nullopt unless it is "auto", "cpu", "cpu_numa", "cuda" (the first GPU), "cuda:N" or "cpu:N".
std::optional<DeviceName> parse_device(const std::string& name);

/// Devices that a replica is to share; 1: it has one for itself.
int32_t num_ranks(const ModelOptions& options);

RankPlace rank_place(const ModelOptions& options, int32_t rank);

/// Throws Error(kInvalidArgument) for devices or a number of them that can't be.
void check_devices(const ModelOptions& options);

/// Whether the device that they name is a GPU, or may turn out to be one.
bool may_open_gpu(const ModelOptions& options);

/// The options that open_device() takes for one rank of a replica: `device` is the rank's,
/// tensor_parallel_size says how many devices all replicas have, and `devices` is empty. `first`:
/// rank 0's, for the others.
ModelOptions rank_options(const ModelOptions& options, const ReplicaPlace& replica, int32_t rank,
                          const Backend* first);

/// The backend that the options name, able to run what `needs` says. "auto" is the first GPU if the
/// CUDA plug-in is there, the GPU is usable and runs the model, and no option asks for the CPU
/// (cpu_isa, a packed file: `packed`), else the CPU. Throws Error(kUnsupported) naming what is
/// missing, Error(kDevice) if the GPU fails. Logs why "auto" is not a GPU.
std::shared_ptr<Backend> open_device(const ModelOptions& options, bool packed,
                                     const BackendNeeds& needs, Logger& logger);

/// Logs why device "auto" is the CPU: a warning where the system shows an NVIDIA GPU, else for
/// debugging only. `root`: of the file system in which GPUs are looked for.
void log_cpu_fallback(const Error& why, Logger& logger, const std::string& root = "/");
/// The same where there is a GPU for sure.
void warn_cpu_fallback(const Error& why, Logger& logger);

}  // namespace headrace::internal
