#pragma once

// How requests end early: from an exception to what their owners see.

#include <exception>
#include <vector>

#include "engine/loop/model_control.h"
#include "engine/request/request_state.h"

namespace headrace::internal {

Ending describe(const std::exception_ptr& why) noexcept;
OutputDelta to_delta(const Ending& ending);

/// Publish what can be published; out of memory, at least that the request has ended.
void deliver(RequestState& state, OutputDelta delta) noexcept;
void deliver(RequestState& state, const Ending& ending) noexcept;

/// Ends what was handed to a loop that has failed. Those it has taken have no state any more.
void refuse(std::vector<Command>& commands, const Ending& ending) noexcept;

}  // namespace headrace::internal
