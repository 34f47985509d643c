#pragma once

// Combines infos, limits, states and statistics of several replicas into those of one model.

#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/request/prepared_request.h"
#include "headrace/engine.h"

namespace headrace::internal {

/// The first replica's info, with limits that all replicas meet, and sums over all replicas.
/// REQUIRES: at least one.
ModelInfo sum_info(const std::vector<LoadedModel>& replicas);

/// Limits that every replica meets, without `fits` and `fits_step`. REQUIRES: at least one.
RequestLimits common_limits(const std::vector<LoadedModel>& replicas);

/// Running if one replica runs, failed if all have failed. REQUIRES: at least one.
ModelState common_state(const std::vector<ModelState>& states);

/// Removes the blocks of a replica that takes no requests, because other replicas can't use them.
void drop_blocks(ModelStats& replica);

/// Adds counters and gauges; the caller sets the state.
void add_stats(const ModelStats& replica, ModelStats& sum);

}  // namespace headrace::internal
