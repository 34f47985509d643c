#pragma once

// A block that runs: its threads on fibers, its shared memory, and what its threads wait for of
// each other. block_runner.cc runs a cluster's blocks by turns.

#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "block_runner.h"
#include "fiber.h"

namespace headrace::emulation {

inline constexpr unsigned kLanes = 32;
inline constexpr size_t kMaxThreads = 1024;

enum class State { kReady, kAtBarrier, kInWarpOperation, kWaiting, kWaitingOutside, kDone };

struct Copy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};

class RunningBlock;

struct Thread {
  Fiber fiber;
  RunningBlock* block = nullptr;
  unsigned number = 0;
  Dim3 index;
  State state = State::kDone;
  std::source_location site;
  uint32_t lanes = 0;
  WarpOperation operation = nullptr;
  void* payload = nullptr;
  std::function<bool()> condition;
  std::deque<std::vector<Copy>> copy_groups;
  std::vector<Copy> open_copies;
  ClusterTurns turns;
  std::source_location arrival;  // the last one at the cluster's barrier
};

/// file:line
std::string place(const std::source_location& site);
bool same_site_elsewhere(const std::source_location& a, const std::source_location& b);
/// Threads of a kernel mostly come from one place in the code: then the name is one, too.
inline bool same_site(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && (a.file_name() == b.file_name() || same_site_elsewhere(a, b));
}

class RunningBlock {
 public:
  struct Place {
    const char* kernel;
    Dim3 in_grid;
    unsigned rank;  // in the cluster
  };

  /// Each thread will call entry(argument).
  void start(const Place& place, Dim3 shape, size_t shared_bytes, void (*entry)(void*),
             void* argument);
  void order_threads(Schedule schedule, std::mt19937& random);
  /// Lets threads go on whose warp, barrier or condition is there: did any?
  bool release();
  /// The same of the warp that begins with that thread.
  bool release_warp(size_t first);

  const Place& place() const { return place_; }
  const std::vector<unsigned>& order() const { return order_; }
  Thread& thread(unsigned number) { return threads_[number]; }
  std::vector<Thread>::iterator begin() { return threads_.begin(); }
  std::vector<Thread>::iterator end() { return begin() + static_cast<ptrdiff_t>(count_); }
  size_t num_threads() const { return count_; }
  char* shared() { return shared_.get(); }
  size_t shared_bytes() const { return shared_bytes_; }
  bool over();
  /// What threads wait for, and where.
  std::string waits();
  [[noreturn]] void report(const std::string& message) const;

  std::unique_ptr<BlockState> extension;
  bool next_started = false;

 private:
  struct FreeShared {
    void operator()(char* memory) const;
  };

  bool release_barrier();
  bool release_waiting();

  // 17 lines of a cache more than a power of two: else all stacks would share a few sets of it, and
  // a block's threads would drive each other's out at each switch.
  static constexpr size_t kStackBytes = (256 << 10) + 17 * 64;
  std::unique_ptr<char[]> stacks_{new char[kStackBytes * kMaxThreads]};
  std::vector<Thread> threads_{kMaxThreads};
  size_t count_ = 0;
  std::vector<unsigned> order_;
  std::unique_ptr<char, FreeShared> shared_;
  size_t shared_bytes_ = 0;
  Place place_{};
};

}  // namespace headrace::emulation
