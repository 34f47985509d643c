#pragma once

// How requests end in the loop.

#include <vector>

#include "engine/loop/model_control.h"
#include "engine/loop/step.h"
#include "engine/media/encoder_stage.h"
#include "engine/request/endings.h"
#include "engine/request/request_state.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// The end of a request that ModelLoop::drop_hopeless() has cancelled.
void end_hopeless(LiveRequest& live, OutputDelta& delta);

/// The end of a request whose image or clip could not be encoded.
Ending describe_failure(const EncoderStage::Failure& failure);

/// Ends what was handed to a loop that has failed. Those it has taken have no state any more.
void refuse(std::vector<Command>& commands, const Ending& ending) noexcept;

FinishReason finish_reason(SeqEnd end);

}  // namespace headrace::internal
