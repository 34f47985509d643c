#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cuda/host/emulated_gpu.h"
#include "engine/engine_access.h"

namespace headrace {

/// An engine whose models run on `gpu`, which outlives it.
inline std::unique_ptr<Engine> emulated_engine(cuda::EmulatedGpu& gpu) {
  const auto open = [&gpu](const ModelOptions&, bool, const BackendNeeds& needs, Logger&) {
    auto backend = gpu.backend(needs.storage);
    backend->require(needs);
    return backend;
  };
  return internal::EngineAccess::make(
      {}, [open](const std::string& name, const ModelOptions& options, Logger& logger) {
        return internal::load_model_on(open, name, options, logger);
      });
}

}  // namespace headrace
