#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "engine/load/loaded_model.h"
#include "headrace/options.h"

namespace headrace::internal {

/// Loads ModelOptions::data_parallel_size replicas: the first one, which says where device "auto"
/// is, then the others, all at once on GPUs and one after the other where they share main memory.
/// LoadProgress and the first one's load_seconds are of all together. If one fails, those under way
/// are cancelled, and what it threw is thrown. Throws Error as check_devices() does.
std::vector<LoadedModel> load_replicas(const ModelLoader& loader, const std::string& name,
                                       const ModelOptions& options, Logger& logger);

}  // namespace headrace::internal
