#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "engine/load/loaded_model.h"
#include "headrace/options.h"

namespace headrace::internal {

/// Loads ModelOptions::data_parallel_size replicas. The first replica comes first and decides what
/// device "auto" is. The others follow: all at once on GPUs, one after the other if they share main
/// memory. LoadProgress and the first replica's load_seconds count all replicas together. If one
/// load fails, the other loads are cancelled, and its exception is thrown. Throws Error like
/// check_devices().
std::vector<LoadedModel> load_replicas(const ModelLoader& loader, const std::string& name,
                                       const ModelOptions& options, Logger& logger);

}  // namespace headrace::internal
