#pragma once

// Loads a model from its folder.

#include <functional>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "base/log.h"
#include "engine/devices/device_names.h"
#include "engine/load/loaded_model.h"
#include "headrace/options.h"

namespace headrace::internal {

/// Throws Error(kInvalidArgument) naming the first option out of range, its value and its range.
void validate_model_options(const ModelOptions& options);

/// See open_device().
using DeviceOpener = std::function<std::shared_ptr<Backend>(
    const ModelOptions& options, bool packed, const BackendNeeds& needs, Logger& logger)>;

/// Reads the folder, plans the memory, packs the weights and reserves the KV cache on the backend
/// that the options name for this replica, or on the one that `open` gives.
/// Where device "auto" is one GPU that then refuses what the model needs (Error(kUnsupported)), it
/// is loaded on the CPU instead, with a warning.
LoadedModel load_model(const std::string& name, const ModelOptions& options,
                       const ReplicaPlace& replica, Logger& logger);
LoadedModel load_model_on(const DeviceOpener& open, const std::string& name,
                          const ModelOptions& options, const ReplicaPlace& replica, Logger& logger);

}  // namespace headrace::internal
