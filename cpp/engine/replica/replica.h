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

/// One replica of a model: its loop, and the thread that runs it.
class Replica {
 public:
  /// `name`: for messages. Takes runner, speculator and encoder out of `loaded`.
  Replica(std::string name, size_t index, LoadedModel& loaded, std::shared_ptr<Logger> logger);

  // --- any thread -------------------------------------------------------------------------------

  const std::shared_ptr<ModelControl>& control() const noexcept { return control_; }
  const ModelLoop& loop() const noexcept { return *loop_; }
  /// With the state, and requests on their way.
  ModelStats stats() const;
  bool on_own_thread() const;

  // --- one thread at a time, not the replica's own ----------------------------------------------

  /// Whether it may begin: it is installed or stopped.
  bool can_begin() const;
  /// Before begin(): takes the memory that steps need, the first time.
  void warm_up();
  /// Runs the thread, and takes requests. Throws Error(kIo) if there is no thread.
  void begin();
  /// Of one that has failed, when the others begin: what it counted was before.
  void forget_counters() { loop_->forget_counters(); }
  void join();
  /// What is left to do is for the thread.
  void detach();
  /// REQUIRES: joined, likewise below.
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
