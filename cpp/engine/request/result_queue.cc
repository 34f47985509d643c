#include "headrace/result_queue.h"

#include <utility>

#include "engine/request/request_state.h"

namespace headrace {

ResultQueue::ResultQueue(std::shared_ptr<internal::RequestState> state)
    : state_(std::move(state)) {}

Output ResultQueue::get() {
  state_->check_process();
  return *state_->get(std::nullopt);
}

std::optional<Output> ResultQueue::get(std::chrono::nanoseconds timeout) {
  state_->check_process();
  return state_->get(timeout);
}

std::optional<Output> ResultQueue::get_nowait() {
  state_->check_process();
  return state_->get_nowait();
}

RequestStatus ResultQueue::status() const {
  state_->check_process();
  return state_->status();
}

FinishReason ResultQueue::finish_reason() const {
  state_->check_process();
  return state_->finish_reason();
}

size_t ResultQueue::generated_length() const {
  state_->check_process();
  return state_->generated_length();
}

RequestStats ResultQueue::stats() const {
  state_->check_process();
  return state_->stats();
}

void ResultQueue::on_output(std::function<void()> callback) {
  state_->check_process();
  state_->on_output(std::move(callback));
}

}  // namespace headrace
