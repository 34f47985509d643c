#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "engine/load/loaded_model.h"
#include "engine/loop/model_control.h"
#include "engine/loop/model_loop.h"

namespace headrace::internal {

/// One replica of a model: its loop, and the thread of the loop.
class Replica {
 public:
  /// `name` is for messages. Moves runner, speculator and encoder out of `loaded`.
  Replica(std::string name, size_t index, LoadedModel& loaded, std::shared_ptr<Logger> logger);

  // --- any thread -------------------------------------------------------------------------------

  const std::shared_ptr<ModelControl>& control() const noexcept { return control_; }
  const ModelLoop& loop() const noexcept { return *loop_; }
  /// Includes the state, and requests that have not reached the loop yet.
  ModelStats stats() const;
  bool on_own_thread() const;

  // --- one thread at a time, not the replica's own ----------------------------------------------

  /// Whether it may begin, because it is installed or stopped.
  bool can_begin() const;
  /// Call before begin(). The first call takes the memory that steps need.
  void warm_up();
  /// Starts the thread, and accepts requests. Throws Error(kIo) if no thread can be started.
  void begin();
  /// Drops the counters of a failed replica when the others begin again.
  void forget_counters() { loop_->forget_counters(); }
  void join();
  /// Lets the thread finish its remaining work alone.
  void detach();
  /// REQUIRES: joined, also for free_memory().
  void clear_prefix_cache() { loop_->clear_prefix_cache(); }
  void free_memory() { loop_->free_memory(); }

 private:
  const std::string name_;
  const std::shared_ptr<ModelControl> control_;
  const std::shared_ptr<ModelLoop> loop_;
  bool warm_ = false;
  std::thread thread_;
};

}  // namespace headrace::internal
