#pragma once

// The devices that options name for a model's replicas and ranks. Opens none of them.

#include <cstdint>
#include <optional>
#include <string>

#include "backend/contract/backend.h"
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

/// Which of the replicas that ModelOptions::data_parallel_size asks for.
struct ReplicaPlace {
  int32_t index = 0;
  /// Name of replica 0's device, which says where device "auto" is; "" for replica 0.
  std::string first_device{};
};

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

}  // namespace headrace::internal
