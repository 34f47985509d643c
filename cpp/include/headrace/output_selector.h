#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "headrace/abi.h"
#include "headrace/result_queue.h"

namespace headrace::inline v0 {

/// Waits for output of any of many requests: one waiting thread, or one file descriptor of an event
/// loop, for a whole batch. A request may be in several. Any thread may call any method.
class HEADRACE_API OutputSelector {
 public:
  enum class Until : uint8_t {
    kOutput,    ///< report all output
    kFinished,  ///< report the end alone
  };

  OutputSelector();
  /// Leaves every queue.
  ~OutputSelector();
  OutputSelector(const OutputSelector&) = delete;
  OutputSelector& operator=(const OutputSelector&) = delete;

  /// From now on `tag` is reported when `queue` has output, and at once if it has some already or
  /// its request has finished. Throws Error(kInvalidArgument) if the tag is in use.
  void add(const ResultQueue& queue, int64_t tag, Until until = Until::kOutput);
  /// The tag is not reported any more and may be used again. No effect on one not in use.
  void remove(int64_t tag);

  /// False if nothing was reported within `timeout`; nullopt waits for ever.
  bool wait(std::optional<std::chrono::nanoseconds> timeout);
  /// Ends the wait that a thread is in, or else the next one: it gives true, though there may be
  /// nothing to take.
  void wake();
  /// Tags reported since the last call, each once, in order of arrival; those beyond `at_most` are
  /// left for the next call.
  std::vector<int64_t> take(size_t at_most = std::numeric_limits<size_t>::max());

  /// Readable while there are tags to take: for poll, epoll and event loops. It belongs to the
  /// selector: wait on it, but neither read nor close it. Throws Error(kIo) if there is none left.
  int ready_fd();

 private:
  struct HEADRACE_LOCAL Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace headrace::inline v0
