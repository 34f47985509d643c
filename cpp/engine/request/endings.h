#pragma once

// How requests end early: from an exception to what their owners see.

#include <exception>
#include <string>

#include "engine/request/request_state.h"

namespace headrace::internal {

/// Why a request or a model ends before its time.
struct Ending {
  FinishReason reason = FinishReason::kError;
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

Ending describe(const std::exception_ptr& why) noexcept;
OutputDelta to_delta(const Ending& ending);

/// Publish what can be published; out of memory, at least that the request has ended.
void deliver(RequestState& state, OutputDelta delta) noexcept;
void deliver(RequestState& state, const Ending& ending) noexcept;

}  // namespace headrace::internal
