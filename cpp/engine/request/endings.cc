#include "engine/request/endings.h"

#include <future>
#include <new>
#include <utility>
#include <variant>

namespace headrace::internal {

namespace {

void describe_to(Ending& out, const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const Error& error) {
    out.code = error.code();
    out.message = error.what();
  } catch (const std::bad_alloc&) {
    out.code = ErrorCode::kOutOfMemory;
    out.message = "out of memory";
  } catch (const std::exception& error) {
    out.message = error.what();
  } catch (...) {
    out.message = "an unknown exception";
  }
}

}  // namespace

Ending describe(const std::exception_ptr& why) noexcept {
  Ending out;
  try {
    describe_to(out, why);
  } catch (...) {  // no memory for the message: the code says enough
  }
  return out;
}

OutputDelta to_delta(const Ending& ending) {
  OutputDelta delta;
  delta.finish_reason = ending.reason;
  delta.error_code = ending.code;
  delta.error_message = ending.message;
  return delta;
}

void deliver(RequestState& state, OutputDelta delta) noexcept {
  try {
    state.publish(std::move(delta));
  } catch (...) {  // what follows ends the request in any case
  }
}

void deliver(RequestState& state, const Ending& ending) noexcept {
  try {
    state.publish(to_delta(ending));
  } catch (...) {
    deliver(state, to_delta({ending.reason, ending.code, {}}));
  }
}

void refuse(std::vector<Command>& commands, const Ending& ending) noexcept {
  for (Command& command : commands) {
    const auto* request = std::get_if<PreparedRequest>(&command);
    if (request != nullptr && request->state) deliver(*request->state, ending);
    auto* clear = std::get_if<ClearCacheCommand>(&command);
    if (clear == nullptr) continue;
    try {
      clear->done.set_value(false);
    } catch (const std::future_error&) {  // it was done before the failure
    }
  }
}

}  // namespace headrace::internal
