#pragma once

// How requests end in a step.

#include "engine/loop/step.h"
#include "engine/request/request_state.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// The end of a request that ModelLoop::drop_hopeless() has cancelled.
void end_hopeless(LiveRequest& live, OutputDelta& delta);

FinishReason finish_reason(SeqEnd end);

}  // namespace headrace::internal
