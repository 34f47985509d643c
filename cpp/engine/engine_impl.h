#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/home_process.h"
#include "base/log.h"
#include "base/mutex.h"
#include "engine/load/loaded_model.h"
#include "engine/served_model.h"
#include "headrace/engine.h"

namespace headrace {

/// Models by name. Any thread may call any method, with no lock held while a model works.
class Engine::Impl {
 public:
  Impl(EngineOptions options, internal::ModelLoader loader);
  /// Releases the models.
  ~Impl();

  void install(const std::string& name, const ModelOptions& options);
  void release(const std::string& name);
  Request submit(internal::ServedModel& model, RequestOptions options);
  /// Error(kNotFound).
  std::shared_ptr<internal::ServedModel> find(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  void reserve_name(const std::string& name);
  void log_installed(const ModelInfo& info);

  const internal::HomeProcess home_;
  const std::shared_ptr<Logger> logger_;
  const internal::ModelLoader loader_;
  std::atomic<uint64_t> request_count_{0};

  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<internal::ServedModel>> models_ HEADRACE_GUARDED_BY(mutex_);
  std::set<std::string> installing_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
