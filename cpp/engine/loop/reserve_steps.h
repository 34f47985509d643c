#pragma once

#include "engine/runner/step_runner.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Reserves what the largest steps keep (StepRunner::reserve): most rows, most sequences (in
/// all, and whose logits are read at once), and one sequence alone, each at the end of the longest
/// context.
void reserve_steps(StepRunner& runner, const SchedulerConfig& config);

}  // namespace headrace::internal
