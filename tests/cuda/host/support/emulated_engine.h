#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cuda/host/support/emulated_gpu.h"
#include "engine/devices/device_names.h"
#include "engine/engine_access.h"
#include "engine/load/load_model.h"

namespace headrace {

/// An engine whose models run on `gpu`, which outlives it, on each of its devices that they ask
/// for.
inline std::unique_ptr<Engine> emulated_engine(cuda::EmulatedGpu& gpu) {
  const auto open = [&gpu](const ModelOptions& options, bool, const BackendNeeds& needs, Logger&) {
    auto backend = gpu.backend(needs.storage, 0, internal::parse_device(options.device)->number);
    backend->require(needs);
    return backend;
  };
  return internal::EngineAccess::make(
      {}, [open](const std::string& name, const ModelOptions& options,
                 const internal::ReplicaPlace& replica, Logger& logger) {
        return internal::load_model_on(open, name, options, replica, logger);
      });
}

}  // namespace headrace
