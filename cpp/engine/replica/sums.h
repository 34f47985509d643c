#pragma once

// What is said of several replicas as of one model.

#include <vector>

#include "engine/load/loaded_model.h"
#include "headrace/engine.h"

namespace headrace::internal {

/// Of the first one, with what all of them take. REQUIRES: one at least.
ModelInfo sum_info(const std::vector<LoadedModel>& replicas);

/// Running if one is, failed if all are. REQUIRES: one at least.
ModelState common_state(const std::vector<ModelState>& states);

/// Adds counters and gauges; the state is for the caller to say.
void add_stats(const ModelStats& replica, ModelStats& sum);

}  // namespace headrace::internal
