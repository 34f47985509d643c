#include "engine/served_model.h"

#include <malloc.h>

#include <system_error>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

// A thread's id may be another's once it has ended: this tells whose thread one is on.
thread_local const ModelLoop* running_loop = nullptr;

const char* state_name(ModelState state) {
  switch (state) {
    case ModelState::kInstalled:
      return "installed but not started";
    case ModelState::kRunning:
      return "running";
    case ModelState::kStopping:
      return "stopping";
    case ModelState::kStopped:
      return "stopped";
    case ModelState::kFailed:
      return "failed";
  }
  return "unknown";
}

RequestLimits make_limits(const LoadedModel& loaded) {
  RequestLimits limits;
  limits.vocab_size = loaded.info.vocab_size;
  limits.hidden_size = loaded.info.hidden_size;
  limits.max_num_batched_tokens = loaded.scheduler.max_num_batched_tokens;
  limits.max_prefill_chunk = loaded.scheduler.max_prefill_chunk;
  limits.causal = loaded.info.causal;
  limits.generates = loaded.info.generates;
  limits.has_head = loaded.has_head;
  limits.max_model_len = loaded.scheduler.max_model_len;
  limits.num_kv_blocks = loaded.scheduler.num_blocks;
  limits.block_size = loaded.scheduler.block_size;
  limits.dynamic_rope_max = loaded.dynamic_rope_max;
  limits.eos_token_ids = loaded.info.eos_token_ids;
  limits.media = loaded.encoder.limits;
  return limits;
}

}  // namespace

ServedModel::ServedModel(LoadedModel loaded, std::shared_ptr<Logger> logger)
    : info_(loaded.info),
      logger_(std::move(logger)),
      control_(std::make_shared<ModelControl>()),
      loop_(std::make_shared<ModelLoop>(
          ModelLoop::Parts{info_.name, loaded.scheduler, std::move(loaded.runner),
                           std::move(loaded.speculator), loaded.encoder, loaded.first_vision_token},
          control_, logger_)),
      loras_(info_.name, info_.max_loras, std::move(loaded.load_lora)),
      limits_(make_limits(loaded)) {
  limits_.fits = [this](int64_t prompt_tokens, int64_t max_tokens) {
    return loop_->fits(prompt_tokens, max_tokens);
  };
  limits_.fits_step = [this](int64_t prompt_tokens) { return loop_->fits_step(prompt_tokens); };
}

ServedModel::~ServedModel() {
  try {
    release();
  } catch (...) {  // only the log line behind the release can fail
  }
}

bool ServedModel::on_own_thread() const { return running_loop == loop_.get(); }

void ServedModel::refuse_on_own_thread(const char* action) const {
  if (on_own_thread()) {
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be ", action,
                " from a callback on its own thread.");
  }
}

void ServedModel::join() {
  if (thread_.joinable()) thread_.join();
}

void ServedModel::start() {
  refuse_on_own_thread("started");
  begin();
  logger_->log(LogLevel::kInfo, "model '", info_.name, "' is running");
}

void ServedModel::begin() {
  const std::lock_guard lock(lifecycle_mutex_);
  const ModelState state = control_->state();
  if (released_ || (state != ModelState::kInstalled && state != ModelState::kStopped)) {
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be started: it is ",
                released_ ? "released" : state_name(state), ".");
  }
  join();
  if (!started_) loop_->warm_up();
  loop_->reset_counters();
  try {
    // The loop idles until begin(): if there is no thread, nothing has been accepted.
    thread_ = std::thread([loop = loop_] {
      running_loop = loop.get();
      loop->run();
    });
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kIo, "model '", info_.name, "': no thread to run it: ", error.what());
  }
  started_ = true;
  control_->begin();
}

bool ServedModel::stop(std::optional<std::chrono::nanoseconds> timeout) {
  refuse_on_own_thread("stopped");
  if (control_->state() == ModelState::kInstalled) {
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be stopped: it is ",
                state_name(ModelState::kInstalled), ".");
  }
  return control_->stop(timeout);
}

bool ServedModel::release() {
  if (on_own_thread()) {
    control_->release();
    loras_.close();
    const std::lock_guard lock(lifecycle_mutex_);
    if (thread_.joinable()) thread_.detach();
    return !std::exchange(released_, true);
  }
  {
    const std::lock_guard lock(lifecycle_mutex_);
    if (released_) return false;
    released_ = true;
    control_->release();
    join();
    loras_.close();
    loop_->free_memory();
    malloc_trim(0);
  }
  logger_->log(LogLevel::kInfo, "model '", info_.name, "' is released");
  return true;
}

void ServedModel::load_lora(const std::string& name, const std::string& path) {
  loras_.load(name, path);
  logger_->log(LogLevel::kInfo, "model '", info_.name, "': adapter '", name, "' is loaded");
}

void ServedModel::unload_lora(const std::string& name) {
  loras_.unload(name);
  malloc_trim(0);
  logger_->log(LogLevel::kInfo, "model '", info_.name, "': adapter '", name, "' is unloaded");
}

Request ServedModel::submit(RequestOptions options) {
  LoraLease lora = loras_.lease(options.lora_name);
  PreparedRequest request =
      prepare_request(std::move(options), limits_, std::move(lora), control_, monotonic_seconds());
  Request handle(request.state);
  if (!control_->submit(std::move(request))) {
    const ModelState state = control_->state();
    const std::string why = control_->failure();
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' takes no requests: it is ",
                state == ModelState::kRunning ? "being released" : state_name(state),
                why.empty() ? "." : ": ", why);
  }
  return handle;
}

ModelStats ServedModel::stats() const {
  ModelStats out = loop_->stats();
  out.state = control_->state();
  out.waiting_requests += static_cast<int32_t>(control_->pending_requests());
  return out;
}

void ServedModel::clear_prefix_cache() {
  for (;;) {
    if (auto done = control_->clear_cache()) {
      // Its own thread can't wait for itself: the cache is cleared before the next step.
      if (on_own_thread() || done->get()) return;
      continue;
    }
    const std::lock_guard lock(lifecycle_mutex_);
    const ModelState state = control_->state();
    if (state == ModelState::kRunning || state == ModelState::kStopping) continue;
    join();
    if (!released_ && state != ModelState::kFailed) loop_->clear_prefix_cache();
    return;
  }
}

}  // namespace headrace::internal
