#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/abi.h"
#include "headrace/result_queue.h"

namespace headrace::inline v0 {

/// Waits for output of any of many requests: one waiting thread for a whole batch. It takes the
/// queues' on_output. Any thread may call any method.
class HEADRACE_API OutputSelector {
 public:
  OutputSelector();
  /// Leaves every queue.
  ~OutputSelector();
  OutputSelector(const OutputSelector&) = delete;
  OutputSelector& operator=(const OutputSelector&) = delete;

  /// From now on `tag` is reported when `queue` has output, and at once if it has some already.
  void add(ResultQueue queue, int64_t tag);
  /// The queue's tag is not reported any more. No effect on one that was not added.
  void remove(const ResultQueue& queue);

  /// False if nothing was reported within `timeout`; nullopt waits for ever.
  bool wait(std::optional<std::chrono::nanoseconds> timeout);
  /// Tags reported since the last call, each once, in order of arrival.
  std::vector<int64_t> take();

 private:
  struct HEADRACE_LOCAL Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace headrace::inline v0
