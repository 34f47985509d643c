#include "engine/replica/replica.h"

#include <system_error>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

// A thread's id may be another's once it has ended: this tells whose thread one is on.
thread_local const ModelLoop* running_loop = nullptr;

}  // namespace

Replica::Replica(std::string name, size_t index, LoadedModel& loaded,
                 std::shared_ptr<Logger> logger)
    : name_(std::move(name)),
      control_(std::make_shared<ModelControl>()),
      loop_(std::make_shared<ModelLoop>(
          ModelLoop::Parts{name_, index, loaded.scheduler, std::move(loaded.runner),
                           std::move(loaded.speculator), loaded.encoder, loaded.first_vision_token},
          control_, std::move(logger))) {}

bool Replica::on_own_thread() const { return running_loop == loop_.get(); }

ModelStats Replica::stats() const {
  ModelStats out = loop_->stats();
  out.state = control_->state();
  out.running_replicas = out.state == ModelState::kRunning ? 1 : 0;
  out.waiting_requests += static_cast<int32_t>(control_->pending_requests());
  return out;
}

bool Replica::can_begin() const {
  const ModelState state = control_->state();
  return state == ModelState::kInstalled || state == ModelState::kStopped;
}

void Replica::warm_up() {
  join();
  if (warm_) return;
  loop_->warm_up();
  warm_ = true;
}

void Replica::begin() {
  join();
  loop_->reset_counters();
  try {
    // The loop idles until begin(): if there is no thread, nothing has been accepted.
    thread_ = std::thread([loop = loop_] {
      running_loop = loop.get();
      loop->run();
    });
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kIo, "model '", name_, "': no thread to run it: ", error.what());
  }
  control_->begin();
}

void Replica::join() {
  if (thread_.joinable()) thread_.join();
}

void Replica::detach() {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace headrace::internal
