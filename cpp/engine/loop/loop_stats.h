#pragma once

#include "headrace/engine.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// What the scheduler says now, and has counted since `start`.
void note_scheduler(const SchedulerStats& now, const SchedulerStats& start, ModelStats& out);

}  // namespace headrace::internal
