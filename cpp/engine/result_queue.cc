#include "headrace/result_queue.h"

#include <utility>

#include "engine/request_state.h"

namespace headrace {

ResultQueue::ResultQueue(std::shared_ptr<internal::RequestState> state)
    : state_(std::move(state)) {}

Output ResultQueue::get() { return *state_->get(std::nullopt); }

std::optional<Output> ResultQueue::get(std::chrono::nanoseconds timeout) {
  return state_->get(timeout);
}

std::optional<Output> ResultQueue::get_nowait() { return state_->get_nowait(); }

RequestStatus ResultQueue::status() const { return state_->status(); }

FinishReason ResultQueue::finish_reason() const { return state_->finish_reason(); }

size_t ResultQueue::generated_length() const { return state_->generated_length(); }

RequestStats ResultQueue::stats() const { return state_->stats(); }

void ResultQueue::on_output(std::function<void()> callback) {
  state_->on_output(std::move(callback));
}

}  // namespace headrace
