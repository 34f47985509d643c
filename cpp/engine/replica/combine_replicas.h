#pragma once

// What is said of several replicas as of one model.

#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/request/prepared_request.h"
#include "headrace/engine.h"

namespace headrace::internal {

/// Of the first one, with what all of them take. REQUIRES: one at least.
ModelInfo sum_info(const std::vector<LoadedModel>& replicas);

/// What every replica takes, but for `fits` and `fits_step`. REQUIRES: one at least.
RequestLimits common_limits(const std::vector<LoadedModel>& replicas);

/// Running if one is, failed if all are. REQUIRES: one at least.
ModelState common_state(const std::vector<ModelState>& states);

/// Of a replica that takes no requests: its blocks are of no use to the others.
void drop_blocks(ModelStats& replica);

/// Adds counters and gauges; the state is for the caller to say.
void add_stats(const ModelStats& replica, ModelStats& sum);

}  // namespace headrace::internal
