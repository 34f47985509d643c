#include "engine/served_model.h"

#include <malloc.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "engine/replica/combine_replicas.h"
#include "engine/replica/run_on_threads.h"

namespace headrace::internal {

namespace {

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

/// One replica's: null once it has failed.
LoraLoader unless_failed(LoraLoader loader, std::shared_ptr<ModelControl> control) {
  return [loader = std::move(loader), control = std::move(control)](
             const std::string& path) -> std::shared_ptr<const LoraAdapter> {
    const auto failed = [&] { return control->state() == ModelState::kFailed; };
    if (failed()) return nullptr;
    try {
      return loader(path);
    } catch (...) {
      if (failed()) return nullptr;
      throw;
    }
  };
}

std::vector<LoraLoader> lora_loaders(std::vector<LoadedModel>& loaded,
                                     const std::vector<std::unique_ptr<Replica>>& replicas) {
  std::vector<LoraLoader> out;
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (!loaded[i].load_lora) continue;
    out.push_back(unless_failed(std::move(loaded[i].load_lora), replicas[i]->control()));
  }
  return out;
}

std::optional<Router> make_router(const std::vector<LoadedModel>& replicas) {
  if (replicas.size() == 1) return std::nullopt;
  std::vector<int64_t> columns;
  for (const LoadedModel& each : replicas) columns.push_back(cacheable_columns(each.scheduler));
  const SchedulerConfig& config = replicas.front().scheduler;
  return std::optional<Router>(std::in_place, columns, config.block_size,
                               config.enable_prefix_caching);
}

std::vector<std::unique_ptr<Replica>> make_replicas(std::vector<LoadedModel>& loaded,
                                                    const std::shared_ptr<Logger>& logger) {
  std::vector<std::unique_ptr<Replica>> out;
  for (size_t i = 0; i < loaded.size(); ++i) {
    const std::string& name = loaded[i].info.name;
    out.push_back(std::make_unique<Replica>(
        loaded.size() == 1 ? name : str_cat(name, " (replica ", i, ")"), i, loaded[i], logger));
  }
  return out;
}

}  // namespace

ServedModel::ServedModel(std::vector<LoadedModel> loaded, std::shared_ptr<Logger> logger)
    : info_(sum_info(loaded)),
      logger_(std::move(logger)),
      replicas_(make_replicas(loaded, logger_)),
      loras_(info_.name, info_.max_loras, lora_loaders(loaded, replicas_)),
      limits_(common_limits(loaded)),
      router_(make_router(loaded)) {
  limits_.fits = [this](int64_t prompt_tokens, int64_t max_tokens) {
    return std::ranges::all_of(replicas_, [&](const auto& replica) {
      return replica->loop().fits(prompt_tokens, max_tokens);
    });
  };
  limits_.fits_step = [this](int64_t prompt_tokens) {
    return std::ranges::all_of(
        replicas_, [&](const auto& replica) { return replica->loop().fits_step(prompt_tokens); });
  };
}

ServedModel::~ServedModel() {
  try {
    release();
  } catch (...) {  // only the log line behind the release can fail
  }
}

bool ServedModel::on_own_thread() const {
  return std::ranges::any_of(replicas_, &Replica::on_own_thread,
                             [](const auto& replica) -> auto& { return *replica; });
}

ModelState ServedModel::state() const {
  std::vector<ModelState> states;
  for (const auto& replica : replicas_) states.push_back(replica->control()->state());
  return common_state(states);
}

void ServedModel::refuse_on_own_thread(const char* action) const {
  if (on_own_thread()) {
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be ", action,
                " from a callback on its own thread.");
  }
}

void ServedModel::start() {
  refuse_on_own_thread("started");
  begin();
  logger_->log(LogLevel::kInfo, "model '", info_.name, "' is running");
}

void ServedModel::begin() {
  const MutexLock lock(lifecycle_mutex_);
  const ModelState now = state();
  if (released_ || (now != ModelState::kInstalled && now != ModelState::kStopped)) {
    throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be started: it is ",
                released_ ? "released" : state_name(now), ".");
  }
  run_on_thread(on_gpu(), [this] {
    run_on_threads(replicas_.size(), [this](size_t i) {
      if (replicas_[i]->can_begin()) replicas_[i]->warm_up();
    });
  });
  begin_replicas();
}

void ServedModel::begin_replicas() {
  std::exception_ptr failure;
  {
    const MutexLock turn(turn_mutex_);
    try {
      for (const auto& replica : replicas_) {
        if (replica->can_begin()) {
          replica->begin();
        } else {
          replica->forget_counters();
        }
      }
      return;
    } catch (...) {
      failure = std::current_exception();
      for (const auto& replica : replicas_) replica->control()->drain();
    }
  }
  wait_stopped(std::nullopt);
  std::rethrow_exception(failure);
}

bool ServedModel::stop(std::optional<std::chrono::nanoseconds> timeout) {
  refuse_on_own_thread("stopped");
  {
    const MutexLock turn(turn_mutex_);
    if (state() == ModelState::kInstalled) {
      throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' can't be stopped: it is ",
                  state_name(ModelState::kInstalled), ".");
    }
    // All of them refuse requests before one is waited for.
    for (const auto& replica : replicas_) replica->control()->drain();
  }
  return wait_stopped(timeout);
}

/// Tells nobody to stop: one that has begun again meanwhile goes on.
bool ServedModel::wait_stopped(std::optional<std::chrono::nanoseconds> timeout) {
  using std::chrono::nanoseconds, std::chrono::steady_clock;
  const auto start = steady_clock::now();
  bool all = true;
  for (const auto& replica : replicas_) {
    std::optional<nanoseconds> left = timeout;
    if (left) left = std::max(nanoseconds(0), *timeout - (steady_clock::now() - start));
    all = replica->control()->wait_stopped(left) && all;
  }
  return all;
}

bool ServedModel::release() {
  const bool own_thread = on_own_thread();
  if (own_thread) {
    for (const auto& replica : replicas_) replica->control()->release();
    loras_.close();
    const MutexLock lock(lifecycle_mutex_);
    for (const auto& replica : replicas_) replica->detach();
    return !std::exchange(released_, true);
  }
  {
    const MutexLock lock(lifecycle_mutex_);
    if (released_) return false;
    released_ = true;
    for (const auto& replica : replicas_) replica->control()->release();
    for (const auto& replica : replicas_) replica->join();
    run_on_thread(on_gpu(), [this] {
      loras_.close();
      for (const auto& replica : replicas_) replica->free_memory();
    });
    malloc_trim(0);
  }
  logger_->log(LogLevel::kInfo, "model '", info_.name, "' is released");
  return true;
}

void ServedModel::load_lora(const std::string& name, const std::string& path) {
  run_on_thread(on_gpu(), [&] { loras_.load(name, path); });
  logger_->log(LogLevel::kInfo, "model '", info_.name, "': adapter '", name, "' is loaded");
}

void ServedModel::unload_lora(const std::string& name) {
  run_on_thread(on_gpu(), [&] { loras_.unload(name); });
  malloc_trim(0);
  logger_->log(LogLevel::kInfo, "model '", info_.name, "': adapter '", name, "' is unloaded");
}

Request ServedModel::submit(RequestOptions options) {
  LoraLease lora = loras_.lease(options.lora_name);
  PreparedRequest request =
      prepare_request(std::move(options), limits_, std::move(lora), monotonic_seconds());
  Request handle(request.state);
  const auto open = [this](size_t i) { return replicas_[i]->control()->takes_requests(); };
  const auto hand_to = [&](size_t i) {
    const std::shared_ptr<ModelControl>& control = replicas_[i]->control();
    request.state->set_replica(i, control);
    return control->submit(request);
  };
  if (!router_) {
    if (hand_to(0)) return handle;
    refuse_request();
  }
  // One that fails meanwhile is not open any more.
  while (auto choice = router_->choose(request.spec, open)) {
    request.booking = std::move(choice->booking);
    if (hand_to(choice->replica)) return handle;
  }
  refuse_request();
}

void ServedModel::refuse_request() const {
  const ModelState now = state();
  std::string why;
  for (const auto& replica : replicas_) {
    if (why.empty()) why = replica->control()->failure();
  }
  throw_error(ErrorCode::kInvalidState, "model '", info_.name, "' takes no requests: it is ",
              now == ModelState::kRunning ? "being released" : state_name(now),
              why.empty() ? "." : ": ", why);
}

ModelStats ServedModel::stats() const {
  ModelStats out;
  std::vector<ModelState> states;
  for (const auto& replica : replicas_) {
    ModelStats each = replica->stats();
    states.push_back(each.state);
    if (replicas_.size() > 1 && each.state == ModelState::kFailed) drop_blocks(each);
    add_stats(each, out);
  }
  out.state = common_state(states);
  return out;
}

// A thread of the model's own can't wait for itself, nor for another of them, which may be waiting
// for this one, nor for a lock that is held by who waits for either.
void ServedModel::clear_prefix_cache() {
  const bool own_thread = on_own_thread();
  for (const auto& replica : replicas_) {
    if (own_thread) {
      replica->control()->clear_cache_soon();
    } else {
      clear_prefix_cache(*replica);
    }
  }
  if (router_) router_->forget_prefixes();
}

void ServedModel::clear_prefix_cache(Replica& replica) {
  for (;;) {
    if (auto done = replica.control()->clear_cache()) {
      if (done->get()) return;
      continue;
    }
    const MutexLock lock(lifecycle_mutex_);
    const ModelState now = replica.control()->state();
    if (now == ModelState::kRunning || now == ModelState::kStopping) continue;
    if (released_ || now == ModelState::kFailed) return;
    replica.join();
    replica.clear_prefix_cache();
    return;
  }
}

std::shared_ptr<void> ServedModel::companion(const std::function<std::shared_ptr<void>()>& make) {
  const MutexLock lock(companion_mutex_);
  if (companion_ == nullptr) companion_ = make();
  return companion_;
}

}  // namespace headrace::internal
