#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/replica/prefix_trace.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// Rows that a replica's requests are still to compute, as far as one can know.
using Workload = std::atomic<int64_t>;

/// A request's part of a workload, for as long as the request lives.
class Booking {
 public:
  Booking() = default;
  Booking(std::shared_ptr<Workload> load, int64_t prompt_rows, int64_t output_rows);
  Booking(Booking&& other) noexcept;
  Booking& operator=(Booking&& other) noexcept;
  ~Booking() { give_back(prompt_rows_ + output_rows_); }

  /// The prompt is computed: only the output is still to come.
  void prompt_done() noexcept;

 private:
  void give_back(int64_t rows) noexcept;

  std::shared_ptr<Workload> load_;  ///< null: nobody counts
  int64_t prompt_rows_ = 0, output_rows_ = 0;
};

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
