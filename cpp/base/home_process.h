#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string_view>

#include "base/check.h"

namespace headrace::internal {

/// Which process an object was made in. A fork()ed child has its memory and none of the threads
/// that work on it: waiting for them, or for a lock that one of them held, would never end.
class HomeProcess {
 public:
  bool left() const noexcept { return getpid() != process_; }

  /// Throws Error(kInvalidState) in any other process. `what`: "request".
  void check(std::string_view what) const {
    if (left()) {
      throw_error(ErrorCode::kInvalidState, "the ", what,
                  " belongs to the process that made it: make one after the fork.");
    }
  }

 private:
  const pid_t process_ = getpid();
};

}  // namespace headrace::internal
