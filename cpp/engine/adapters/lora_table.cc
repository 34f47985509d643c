#include "engine/adapters/lora_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/lora/lora_adapter.h"

namespace headrace::internal {

namespace {

/// They are all alike. Null: there is none.
const LoraAdapter* first_of(const LoadedLora& lora) {
  const auto found =
      std::ranges::find_if(lora.adapters, [](const auto& each) { return each != nullptr; });
  return found == lora.adapters.end() ? nullptr : found->get();
}

/// `lora` hands the adapter out, and gets it back in `let_go` from the last who holds it.
void add(LoadedLora& lora, std::shared_ptr<const LoraAdapter> adapter) {
  if (adapter == nullptr) {
    lora.adapters.push_back(nullptr);
    return;
  }
  auto back = std::make_shared<std::promise<std::shared_ptr<const LoraAdapter>>>();
  lora.let_go.push_back(back->get_future().share());
  const LoraAdapter* const handed_out = adapter.get();
  lora.adapters.emplace_back(handed_out, [adapter = std::move(adapter), back](auto*) mutable {
    back->set_value(std::move(adapter));
  });
}

}  // namespace

LoraTable::LoraTable(std::string model, int32_t max_loras, std::vector<LoraLoader> loaders)
    : model_(std::move(model)),
      max_loras_(static_cast<size_t>(max_loras)),
      loaders_(std::move(loaders)) {}

void LoraTable::load(const std::string& name, const std::string& path) {
  reserve(name, path);
  std::shared_ptr<LoadedLora> made;
  try {
    std::vector<LoraLoader> loaders;
    {
      const MutexLock lock(mutex_);
      loaders = loaders_;
    }
    made = std::make_shared<LoadedLora>();
    made->name = name;
    made->path = path;
    for (const LoraLoader& loader : loaders) add(*made, loader(path));
    if (!loaders.empty() && first_of(*made) == nullptr) {
      throw_error(ErrorCode::kInvalidState, "adapter '", name, "' can't be loaded: model '", model_,
                  "' has failed.");
    }
  } catch (...) {
    const MutexLock lock(mutex_);
    loading_.erase(name);
    throw;
  }
  const MutexLock lock(mutex_);
  loading_.erase(name);
  if (loaders_.empty()) {
    throw_error(ErrorCode::kInvalidState, "model '", model_, "' was released meanwhile.");
  }
  made->identity = ++last_identity_;
  loaded_.emplace(name, std::move(made));
}

void LoraTable::reserve(const std::string& name, const std::string& path) {
  if (name.empty()) throw_error(ErrorCode::kInvalidArgument, "an adapter's name can't be empty.");
  if (path.empty()) throw_error(ErrorCode::kInvalidArgument, "an adapter's path can't be empty.");
  const MutexLock lock(mutex_);
  if (loaded_.contains(name) || loading_.contains(name)) {
    throw_error(ErrorCode::kInvalidState, "model '", model_, "' has an adapter '", name,
                "' already: unload it first or choose another name.");
  }
  if (loaded_.size() + loading_.size() >= max_loras_) {
    throw_error(ErrorCode::kLimitExceeded, "model '", model_, "' holds at most ", max_loras_,
                " adapters (max_loras): unload one or raise it when the model is installed.");
  }
  HEADRACE_CHECK(last_identity_ < std::numeric_limits<uint32_t>::max());
  loading_.insert(name);
}

void LoraTable::unload(const std::string& name) {
  LoraLease lora = take(name);
  const auto let_go = lora->let_go;
  lora.reset();
  for (const auto& adapter : let_go) adapter.wait();
}  // its memory is given back with no lock held

/// Out of the table.
LoraLease LoraTable::take(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = loaded_.find(name);
  if (found == loaded_.end()) refuse_unknown(name);
  // Leases are only made under the lock: what is one here stays one.
  if (const auto holders = found->second.use_count() - 1; holders > 0) {
    throw_error(ErrorCode::kInvalidState, "adapter '", name, "' of model '", model_,
                "' is in use by ", holders, holders == 1 ? " request" : " requests",
                ": unload it when they have finished.");
  }
  LoraLease out = std::move(found->second);
  loaded_.erase(found);
  return out;
}

LoraLease LoraTable::lease(const std::string& name) const {
  if (name.empty()) return nullptr;
  const MutexLock lock(mutex_);
  const auto found = loaded_.find(name);
  if (found == loaded_.end()) refuse_unknown(name);
  return found->second;
}

std::vector<LoraInfo> LoraTable::list() const {
  std::vector<LoraInfo> out;
  const MutexLock lock(mutex_);
  for (const auto& [name, lora] : loaded_) {
    const LoraAdapter& first = *first_of(*lora);
    size_t bytes = 0;
    for (const auto& adapter : lora->adapters) bytes += adapter ? adapter->bytes() : 0;
    out.push_back({.name = name,
                   .path = lora->path,
                   .rank = first.rank(),
                   .num_modules = first.num_modules(),
                   .bytes = bytes,
                   .live_requests = static_cast<int32_t>(lora.use_count() - 1)});
  }
  return out;
}

void LoraTable::close() {
  std::vector<LoraLoader> loaders;
  std::map<std::string, LoraLease> gone;
  const MutexLock lock(mutex_);
  loaders.swap(loaders_);
  gone.swap(loaded_);
}

void LoraTable::refuse_unknown(const std::string& name) const {
  throw_error(ErrorCode::kNotFound, "model '", model_, "' has no adapter '", name,
              "': load it with load_lora.");
}

}  // namespace headrace::internal
