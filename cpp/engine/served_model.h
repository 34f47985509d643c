#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/load/loaded_model.h"
#include "engine/loop/model_control.h"
#include "engine/loop/model_loop.h"
#include "engine/lora_table.h"

namespace headrace::internal {

/// One model of an engine: its lifecycle and its thread. Any thread may call any method.
class ServedModel {
 public:
  ServedModel(LoadedModel loaded, std::shared_ptr<Logger> logger);
  /// Releases.
  ~ServedModel();
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  /// Warms up, then serves. From installed or stopped, else Error(kInvalidState).
  void start();
  /// See ModelControl::stop.
  bool stop(std::optional<std::chrono::nanoseconds> timeout);
  /// Cancels what runs and gives the memory back; false if that has been done already. On the
  /// model's own thread, which it cannot wait for, it leaves the rest to that thread.
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

 private:
  void refuse_on_own_thread(const char* action) const;
  void begin();
  void join();

  const ModelInfo info_;
  const std::shared_ptr<Logger> logger_;
  const std::shared_ptr<ModelControl> control_;
  const std::shared_ptr<ModelLoop> loop_;
  LoraTable loras_;
  RequestLimits limits_;

  std::mutex lifecycle_mutex_;  // start and release, which may take long
  bool started_ = false;        // guarded by lifecycle_mutex_, likewise below
  bool released_ = false;
  std::thread thread_;
};

}  // namespace headrace::internal
