#include "headrace/request.h"

#include <utility>

#include "engine/request/request_state.h"

namespace headrace {

Request::Request(std::shared_ptr<internal::RequestState> state) : state_(std::move(state)) {}

const std::string& Request::id() const { return state_->id(); }

uint64_t Request::seed() const { return state_->seed(); }

ResultQueue Request::results() const { return ResultQueue(state_); }

void Request::cancel() {
  state_->check_process();
  // Without its replica the request has finished already.
  if (const auto replica = state_->replica()) replica->cancel(state_);
}

void Request::wait() const {
  state_->check_process();
  state_->wait(std::nullopt);
}

bool Request::wait(std::chrono::nanoseconds timeout) const {
  state_->check_process();
  return state_->wait(timeout);
}

}  // namespace headrace
