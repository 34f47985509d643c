#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "engine/replica/prefix_trace.h"
#include "engine/request/booking.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Blocks of tokens whose keys and values a replica can keep, in device memory and in main memory:
/// each takes a KV block of every group.
int64_t cacheable_columns(const SchedulerConfig& config);

/// Chooses the replica that computes a request: the replica with the fewest rows, including the new
/// request's. If a row took equally long everywhere, this replica would finish the request first.
/// Prompt rows that a replica's prefix cache probably holds don't count. So requests with a common
/// prefix go to one replica, unless another one would be faster without the prefix. Any thread.
class Router {
 public:
  /// The most tokens that an output is expected to have: max_tokens is usually a bound, not an
  /// estimate.
  static constexpr int64_t kExpectedOutput = 256;

  /// `num_columns`: cacheable_columns() of each replica.
  Router(const std::vector<int64_t>& num_columns, int32_t block_size, bool caches_prefixes);

  struct Choice {
    size_t replica = 0;
    Booking booking;
  };
  /// Of equally good replicas, the first. nullopt if none is `open`.
  std::optional<Choice> choose(const SeqSpec& spec, const std::function<bool(size_t)>& open);

  /// Notes that all prefix caches are empty now.
  void forget_prefixes();
  int64_t load(size_t replica) const { return *replicas_[replica].load; }

 private:
  struct Known {
    std::shared_ptr<Workload> load;
    PrefixTrace trace;
  };

  const int32_t block_size_;
  const bool caches_prefixes_;
  Mutex mutex_;  // guards the traces; one choice at a time
  std::vector<Known> replicas_;
};

}  // namespace headrace::internal
