#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/engine.h"

namespace headrace {
class LoraAdapter;
}

namespace headrace::internal {

/// An adapter under its name. Immutable.
struct LoadedLora {
  std::string name, path;
  /// From 1 upwards, never given twice: the same name with other weights is another identity.
  uint32_t identity = 0;
  /// On the devices of each replica; null for one that had failed before.
  std::vector<std::shared_ptr<const LoraAdapter>> adapters;
  /// Each that is not null, once this is gone and no step holds it.
  std::vector<std::shared_future<std::shared_ptr<const LoraAdapter>>> let_go;
};

/// A request's hold on its adapter, null for none: what is held is not unloaded.
using LoraLease = std::shared_ptr<const LoadedLora>;

/// Null: the replica has failed, and takes no requests any more.
using LoraLoader = std::function<std::shared_ptr<const LoraAdapter>(const std::string& path)>;

/// The adapters of one model by name. Any thread; folders are read on the caller's, with no lock
/// held.
class LoraTable {
 public:
  /// A loader for each replica. They may be called by several threads at once.
  LoraTable(std::string model, int32_t max_loras, std::vector<LoraLoader> loaders);

  /// Error(kInvalidArgument) for an empty name or path, kInvalidState for one that is taken,
  /// kLimitExceeded if the table is full, what a loader throws, and kInvalidState if all replicas
  /// have failed.
  void load(const std::string& name, const std::string& path);
  /// Error(kNotFound), or kInvalidState while a request holds it. Returns when its memory is free:
  /// a step under way may have rows of a request that has ended.
  void unload(const std::string& name);
  /// Error(kNotFound). An empty name gives none.
  LoraLease lease(const std::string& name) const;
  std::vector<LoraInfo> list() const;
  /// Lets go of all adapters; nothing can be loaded any more.
  void close();

 private:
  void reserve(const std::string& name, const std::string& path);
  LoraLease take(const std::string& name);
  [[noreturn]] void refuse_unknown(const std::string& name) const;

  const std::string model_;
  const size_t max_loras_;

  mutable Mutex mutex_;
  std::vector<LoraLoader> loaders_ HEADRACE_GUARDED_BY(mutex_);  // none once closed
  std::map<std::string, LoraLease> loaded_ HEADRACE_GUARDED_BY(mutex_);
  std::set<std::string> loading_ HEADRACE_GUARDED_BY(mutex_);
  uint32_t last_identity_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace::internal
