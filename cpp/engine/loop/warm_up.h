#pragma once

#include "engine/runner/step_runner.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Takes the memory that steps need and computes one token. Where steps are recorded and nothing is
/// guessed, it also computes the steps that the first requests will decode by, for half a second at
/// most. Writes to blocks of the cache.
void warm_up(StepRunner& runner, const SchedulerConfig& config, bool guesses);

}  // namespace headrace::internal
