#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/replica/prefix_trace.h"
#include "engine/request/booking.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Says which replica is to compute a request: the one where it would be done first, if a row took
/// equally long everywhere. That is the one with the fewest rows in hand, the request's own
/// included; rows of the prompt that a replica's prefix cache is likely to hold don't count. So a
/// prefix draws its requests to one replica as long as others would not be faster without it.
/// Any thread.
class Router {
 public:
  /// Of an output that may be longer, so many tokens are expected: max_tokens is a bound more
  /// often than a guess.
  static constexpr int64_t kExpectedOutput = 256;

  /// `num_blocks`: KV blocks of each replica, in the device's and in main memory.
  Router(const std::vector<int64_t>& num_blocks, int32_t block_size, bool caches_prefixes);

  struct Choice {
    size_t replica = 0;
    Booking booking;
  };
  /// The first one of those that are equally good. nullopt if none is `open`.
  std::optional<Choice> choose(const SeqSpec& spec, const std::function<bool(size_t)>& open);

  /// The prefix caches are empty now.
  void forget_prefixes();
  int64_t load(size_t replica) const { return *replicas_[replica].load; }

 private:
  struct Known {
    std::shared_ptr<Workload> load;
    PrefixTrace trace;
  };

  const int32_t block_size_;
  const bool caches_prefixes_;
  std::mutex mutex_;  // guards the traces, and choices against each other
  std::vector<Known> replicas_;
};

}  // namespace headrace::internal
