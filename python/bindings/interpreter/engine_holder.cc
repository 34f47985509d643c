#include "engine_holder.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "headrace/status.h"
#include "interpreter_gate.h"

namespace headrace::python {

namespace {

/// Engines to close at interpreter exit. Never destroyed, like the gate.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<EngineHolder>> holders;

  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }
};

}  // namespace

EngineHolder::EngineHolder(EngineOptions options)
    : process_(getpid()), engine_(std::make_shared<Engine>(std::move(options))) {}

std::shared_ptr<EngineHolder> EngineHolder::make(EngineOptions options) {
  std::shared_ptr<EngineHolder> holder(new EngineHolder(std::move(options)));
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.holders, [](const auto& each) { return each.expired(); });
  registry.holders.push_back(holder);
  return holder;
}

EngineHolder::~EngineHolder() {
  const GilRelease release;
  close();
}

std::shared_ptr<Engine> EngineHolder::get() const {
  if (getpid() != process_) {
    throw Error(ErrorCode::kInvalidState,
                "the engine belongs to the process that made it: make one after the fork.");
  }
  {
    const std::lock_guard lock(mutex_);
    if (engine_) return engine_;
  }
  sleep_if_ending();
  throw Error(ErrorCode::kInvalidState, "the engine has been closed.");
}

void EngineHolder::close() {
  std::shared_ptr<Engine> engine;
  if (getpid() != process_) {  // the parent may have forked while another thread held the lock
    if (engine_) new std::shared_ptr<Engine>(std::move(engine_));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    engine = std::exchange(engine_, nullptr);
  }
  closing_.request_stop();
  if (!engine) return;
  for (const std::string& name : engine->models()) {
    try {
      engine->release_model(name);
    } catch (
        const Error&) {  // released meanwhile; or a callback's thread, which ~Engine copes with
    }
  }
}

void EngineHolder::close_all() {
  Registry& registry = Registry::instance();
  std::vector<std::weak_ptr<EngineHolder>> holders;
  {
    const std::lock_guard lock(registry.mutex);
    holders.swap(registry.holders);
  }
  for (const auto& each : holders) {
    if (const auto holder = each.lock()) holder->close();
  }
}

}  // namespace headrace::python
