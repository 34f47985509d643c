#pragma once

#include "engine/guess/speculator.h"
#include "engine/runner/step_runner.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Takes the memory that steps need and computes one token; with guessing (`speculator` may be
/// null), also a few steps of more rows, to learn what they cost; without, where steps are
/// recorded, those that the first requests will decode by, for half a second at most. Writes to
/// blocks of the cache.
void warm_up(StepRunner& runner, const SchedulerConfig& config, Speculator* speculator);

}  // namespace headrace::internal
