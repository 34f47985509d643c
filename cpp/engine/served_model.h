#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/adapters/lora_table.h"
#include "engine/load/loaded_model.h"
#include "engine/replica/replica.h"
#include "engine/replica/router.h"
#include "engine/request/prepared_request.h"

namespace headrace::internal {

/// One model of an engine, of one replica or several: its lifecycle, and which replica computes a
/// request. Any thread may call any method.
class ServedModel {
 public:
  /// REQUIRES: one replica at least.
  ServedModel(std::vector<LoadedModel> loaded, std::shared_ptr<Logger> logger);
  /// Releases.
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  /// Warms up, then serves. From installed or stopped, else Error(kInvalidState). Replicas that
  /// have failed are left out.
  void start();
  /// See ModelControl::stop.
  bool stop(std::optional<std::chrono::nanoseconds> timeout);
  /// Cancels what runs and gives the memory back; false if that has been done already. On a thread
  /// of the model's own, which it cannot wait for, it leaves the rest to its threads.
  bool release();

  Request submit(RequestOptions options);
  /// See LoraTable.
  void load_lora(const std::string& name, const std::string& path);
  void unload_lora(const std::string& name);
  std::vector<LoraInfo> loras() const { return loras_.list(); }
  ModelInfo info() const { return info_; }
  ModelStats stats() const;
  void clear_prefix_cache();

  /// Whether the caller is in a callback of this model.
  bool on_own_thread() const;

  /// What a room above keeps with a model, of one kind alone: made at the first call.
  std::shared_ptr<void> companion(const std::function<std::shared_ptr<void>()>& make);

 private:
  ModelState state() const;
  bool on_gpu() const { return info_.device.starts_with("cuda"); }
  void refuse_on_own_thread(const char* action) const;
  void begin();
  void begin_replicas();
  bool wait_stopped(std::optional<std::chrono::nanoseconds> timeout);
  void clear_prefix_cache(Replica& replica);
  [[noreturn]] void refuse_request() const;

  const ModelInfo info_;
  const std::shared_ptr<Logger> logger_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  LoraTable loras_;
  RequestLimits limits_;
  std::optional<Router> router_;  // nullopt: one replica

  Mutex lifecycle_mutex_;  // start and release, which may take long
  bool released_ HEADRACE_GUARDED_BY(lifecycle_mutex_) = false;
  Mutex turn_mutex_;  // all replicas begin, or all are told to stop
  Mutex companion_mutex_;
  std::shared_ptr<void> companion_ HEADRACE_GUARDED_BY(companion_mutex_);
};

}  // namespace headrace::internal
