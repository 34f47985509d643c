#pragma once

#include <memory>
#include <mutex>
#include <stop_token>

#include "headrace/engine.h"

namespace headrace::python {

/// An Engine as Python owns it: closed by hand, by the garbage collector or at interpreter exit,
/// whichever comes first. In a forked child, which has none of its threads, it is out of use and
/// never destroyed.
class EngineHolder {
 public:
  static std::shared_ptr<EngineHolder> make(EngineOptions options);
  /// Closes. REQUIRES: the GIL is held.
  ~EngineHolder();

  /// Throws Error(kInvalidState) once closed. The engine lives until the last user lets go, which
  /// must not be done with the GIL.
  std::shared_ptr<Engine> get() const;
  /// Cancels and releases every model. Idempotent. REQUIRES: the GIL is not held.
  void close();
  /// Requested by close(): ends what is being loaded.
  std::stop_token closing() const { return closing_.get_token(); }

  /// Closes every engine there is. REQUIRES: the GIL is not held.
  static void close_all();

 private:
  explicit EngineHolder(EngineOptions options);

  const int process_;
  std::stop_source closing_;
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;  // guarded by mutex_; null when closed
};

}  // namespace headrace::python
