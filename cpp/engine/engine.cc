#include "headrace/engine.h"

#include <utility>

#include "base/check.h"
#include "base/mutex.h"
#include "engine/devices/device_names.h"
#include "engine/engine_access.h"
#include "engine/engine_impl.h"
#include "engine/replica/load_replicas.h"
#include "engine/replica/run_on_threads.h"

namespace headrace {

using internal::ModelLoader;
using internal::ServedModel;

namespace {

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw_error(ErrorCode::kNotFound, "no model '", name, "' is installed.");
}

}  // namespace

Engine::Impl::Impl(EngineOptions options, ModelLoader loader)
    : logger_(std::make_shared<Logger>(std::move(options.log_sink), log_level_from_env())),
      loader_(std::move(loader)) {}

Engine::Impl::~Impl() {
  if (home_.left()) {  // their threads aren't here to be waited for
    new std::map<std::string, std::shared_ptr<ServedModel>>(std::move(models_));
    return;
  }
  for (const auto& [name, model] : models_) {
    try {
      model->release();
    } catch (...) {  // only the log line behind the release can fail
    }
  }
}

void Engine::Impl::install(const std::string& name, const ModelOptions& options) {
  reserve_name(name);
  std::shared_ptr<ServedModel> model;
  try {
    internal::run_on_thread(internal::may_open_gpu(options), [&] {
      model = std::make_shared<ServedModel>(
          internal::load_replicas(loader_, name, options, *logger_), logger_);
    });
    log_installed(model->info());
  } catch (...) {
    const MutexLock lock(mutex_);
    installing_.erase(name);
    throw;
  }
  const MutexLock lock(mutex_);
  installing_.erase(name);
  models_.emplace(name, std::move(model));
}

void Engine::Impl::release(const std::string& name) {
  const auto model = find(name);
  if (model->on_own_thread()) {
    throw_error(ErrorCode::kInvalidState, "model '", name,
                "' can't be released from a callback on its own thread.");
  }
  const bool released = model->release();
  const MutexLock lock(mutex_);
  const auto found = models_.find(name);
  if (found != models_.end() && found->second == model) models_.erase(found);
  if (!released) refuse_unknown(name);
}

Request Engine::Impl::submit(ServedModel& model, RequestOptions options) {
  if (options.request_id.empty()) options.request_id = str_cat("request-", ++request_count_);
  return model.submit(std::move(options));
}

std::shared_ptr<ServedModel> Engine::Impl::find(const std::string& name) const {
  home_.check("engine");
  const MutexLock lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) refuse_unknown(name);
  return found->second;
}

std::vector<std::string> Engine::Impl::names() const {
  home_.check("engine");
  const MutexLock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, model] : models_) out.push_back(name);
  return out;
}

void Engine::Impl::reserve_name(const std::string& name) {
  home_.check("engine");
  if (name.empty()) throw_error(ErrorCode::kInvalidArgument, "a model's name can't be empty.");
  const MutexLock lock(mutex_);
  if (models_.contains(name) || !installing_.insert(name).second) {
    throw_error(ErrorCode::kInvalidState, "model '", name,
                "' is installed already: release it first or choose another name.");
  }
}

void Engine::Impl::log_installed(const ModelInfo& info) {
  logger_->log(
      LogLevel::kInfo, "model '", info.name, "' (", info.family, ", ", info.num_parameters,
      " parameters, ", info.dtype, ") is installed on ", info.device, " (", info.isa,
      info.num_threads > 0 ? str_cat(", ", info.num_threads, " threads") : "",
      info.data_parallel_size > 1 ? str_cat(", ", info.data_parallel_size, " replicas") : "",
      "): ", info.weight_bytes >> 20, " MiB of weights, ", info.scratch_bytes >> 20,
      " MiB of scratch, ", info.reserved_bytes >> 20, " MiB reserved for steps, ",
      info.kv_cache_bytes >> 20, " MiB of KV cache (", info.num_kv_blocks, " blocks of ",
      info.block_size, " tokens",
      info.num_kv_groups > 1 ? str_cat(", for ", info.num_kv_groups, " groups of layers") : "",
      "), ", info.device_free_bytes >> 20, " MiB left free, loaded in ", info.load_seconds, " s");
}

std::unique_ptr<Engine> internal::EngineAccess::make(EngineOptions options, ModelLoader loader) {
  auto impl = std::make_unique<Engine::Impl>(std::move(options), std::move(loader));
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() = default;

void Engine::install_model(const std::string& name, const ModelOptions& options) {
  impl_->install(name, options);
}

void Engine::start_model(const std::string& name) { impl_->find(name)->start(); }

void Engine::stop_model(const std::string& name) { impl_->find(name)->stop(std::nullopt); }

bool Engine::stop_model(const std::string& name, std::chrono::nanoseconds timeout) {
  return impl_->find(name)->stop(timeout);
}

void Engine::release_model(const std::string& name) { impl_->release(name); }

Request Engine::submit(const std::string& name, RequestOptions options) {
  return impl_->submit(*impl_->find(name), std::move(options));
}

void Engine::load_lora(const std::string& name, const std::string& lora_name,
                       const std::string& path) {
  impl_->find(name)->load_lora(lora_name, path);
}

void Engine::unload_lora(const std::string& name, const std::string& lora_name) {
  impl_->find(name)->unload_lora(lora_name);
}

std::vector<LoraInfo> Engine::loras(const std::string& name) const {
  return impl_->find(name)->loras();
}

ModelInfo Engine::model_info(const std::string& name) const { return impl_->find(name)->info(); }

ModelStats Engine::model_stats(const std::string& name) const { return impl_->find(name)->stats(); }

std::vector<std::string> Engine::models() const { return impl_->names(); }

void Engine::clear_prefix_cache(const std::string& name) {
  impl_->find(name)->clear_prefix_cache();
}

}  // namespace headrace
