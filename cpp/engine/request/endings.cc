#include "engine/request/endings.h"

#include <new>
#include <utility>

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

}  // namespace headrace::internal
