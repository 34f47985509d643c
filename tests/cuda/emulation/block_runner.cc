#include "block_runner.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_emulation.h"
#include "fiber.h"

namespace headrace::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = 227 << 10;
constexpr size_t kSharedAlign = 1024;
constexpr unsigned kLanes = 32;
constexpr std::chrono::seconds kLongestPause(60);

enum class State { kReady, kAtBarrier, kInWarpOperation, kWaiting, kWaitingOutside, kDone };

struct Copy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};

struct Thread {
  Fiber fiber;
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
};

struct FreeShared {
  void operator()(char* memory) const { ::operator delete(memory, std::align_val_t{kSharedAlign}); }
};

std::string place(const std::source_location& site) {
  const char* file = std::strrchr(site.file_name(), '/');
  return std::string(file == nullptr ? site.file_name() : file + 1) + ":" +
         std::to_string(site.line());
}

bool same_site(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

class Runner {
 public:
  void run(const char* name, Dim3 grid, Dim3 block, size_t shared_bytes,
           const std::function<void()>& kernel);

  Thread& current() { return *current_; }
  char* shared() { return shared_.get(); }
  size_t shared_bytes() const { return shared_bytes_; }
  size_t threads() const { return count_; }
  bool& next_started() { return next_started_; }
  std::deque<std::function<void()>>& late_work() { return late_work_; }
  std::unique_ptr<BlockState>& extension() { return extension_; }
  /// Leaves the running thread for good: nothing on its stack may own memory.
  [[noreturn]] void fail(const char* error, const std::source_location& site) {
    error_ = error;
    current_->site = site;
    current_->fiber.suspend();
    __builtin_trap();
  }

  Schedule schedule = Schedule::kForward;

 private:
  void check(Dim3 grid, Dim3 block, size_t shared_bytes) const;
  void start_block(Dim3 block, size_t shared_bytes);
  void run_block();
  bool run_warp(size_t first);
  bool release_warp(size_t first);
  bool release_barrier();
  bool release_waiting();
  bool do_late_work();
  bool pause_outside();
  [[noreturn]] void report_deadlock() const;
  void resume(Thread& thread);
  void order_threads();
  [[noreturn]] void report(const std::string& message) const;
  static void thread_main(void* runner);

  const char* name_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  std::unique_ptr<char[]> stacks_{new char[kStackBytes * kMaxThreads]};
  std::vector<Thread> threads_{kMaxThreads};
  size_t count_ = 0;
  std::vector<unsigned> order_;
  std::unique_ptr<char, FreeShared> shared_;
  size_t shared_bytes_ = 0;
  std::deque<std::function<void()>> late_work_;
  std::unique_ptr<BlockState> extension_;
  Thread* current_ = nullptr;
  const char* error_ = nullptr;
  bool next_started_ = false;  // by a thread of the running block
  std::mt19937 random_{1};
  uint64_t pauses_ = 0;  // since a thread ran
  std::chrono::steady_clock::time_point paused_since_;
};

std::atomic<std::chrono::milliseconds> longest_wait_outside{std::chrono::seconds(120)};
std::mutex outside_mutex;
std::function<void()> outside_pause;

thread_local std::unique_ptr<Runner> runner_memory;

Runner& runner() {
  if (runner_memory == nullptr) runner_memory = std::make_unique<Runner>();
  return *runner_memory;
}

void Runner::report(const std::string& message) const {
  throw EmulationError(std::string(name_) + ", block (" + std::to_string(blockIdx.x) + ", " +
                       std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) +
                       "): " + message);
}

void Runner::check(Dim3 grid, Dim3 block, size_t shared_bytes) const {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool fits = threads >= 1 && threads <= kMaxThreads && block.z <= 64 && grid.x >= 1 &&
                    grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
                    grid.z <= 65535 && shared_bytes <= kMaxSharedBytes;
  if (!fits) {
    throw EmulationError(std::string(name_) + ": no GPU takes this launch: " +
                         std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
                         std::to_string(grid.z) + " blocks of " + std::to_string(threads) +
                         " threads with " + std::to_string(shared_bytes) + " bytes shared");
  }
}

void Runner::run(const char* name, Dim3 grid, Dim3 block, size_t shared_bytes,
                 const std::function<void()>& kernel) {
  name_ = name;
  kernel_ = &kernel;
  check(grid, block, shared_bytes);
  gridDim = grid;
  blockDim = block;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        start_block(block, shared_bytes);
        run_block();
      }
    }
  }
}

void Runner::start_block(Dim3 block, size_t shared_bytes) {
  shared_.reset(static_cast<char*>(::operator new(shared_bytes, std::align_val_t{kSharedAlign})));
  std::memset(shared_.get(), 0xff, shared_bytes);
  shared_bytes_ = shared_bytes;
  late_work_.clear();
  extension_.reset();
  error_ = nullptr;
  next_started_ = false;
  count_ = size_t{block.x} * block.y * block.z;
  for (size_t i = 0; i < count_; ++i) {
    const auto n = static_cast<unsigned>(i);
    Thread& thread = threads_[i];
    thread.number = n;
    thread.index = {n % block.x, n / block.x % block.y, n / block.x / block.y};
    thread.state = State::kReady;
    thread.copy_groups.clear();
    thread.open_copies.clear();
    thread.fiber.start(stacks_.get() + i * kStackBytes, kStackBytes, &Runner::thread_main, this);
  }
  order_threads();
}

void Runner::order_threads() {
  order_.resize(count_);
  std::iota(order_.begin(), order_.end(), 0u);
  if (schedule == Schedule::kBackward) std::reverse(order_.begin(), order_.end());
  if (schedule == Schedule::kShuffled) std::shuffle(order_.begin(), order_.end(), random_);
}

void Runner::thread_main(void* self) {
  auto& run = *static_cast<Runner*>(self);
  (*run.kernel_)();
  run.current_->state = State::kDone;
  run.current_->fiber.suspend();
}

void Runner::resume(Thread& thread) {
  current_ = &thread;
  threadIdx = thread.index;
  thread.fiber.resume();
  current_ = nullptr;
  if (error_ != nullptr) report(place(thread.site) + ": " + error_);
}

void Runner::run_block() {
  for (bool all_done = false; !all_done;) {
    bool progress = false;
    for (size_t first = 0; schedule == Schedule::kWarpsAhead && first < count_; first += kLanes) {
      while (run_warp(first)) progress = true;
    }
    for (const unsigned number : order_) {
      if (threads_[number].state != State::kReady) continue;
      resume(threads_[number]);
      progress = true;
    }
    for (size_t first = 0; first < count_; first += kLanes) progress |= release_warp(first);
    progress |= release_barrier();
    progress |= release_waiting();
    all_done = std::all_of(threads_.begin(), threads_.begin() + static_cast<ptrdiff_t>(count_),
                           [](const Thread& t) { return t.state == State::kDone; });
    if (progress) pauses_ = 0;
    if (!progress && !all_done && !do_late_work() && !pause_outside()) report_deadlock();
  }
  while (do_late_work()) {
  }
  const char* error = extension_ == nullptr ? nullptr : extension_->at_end();
  if (error != nullptr) report(error);
}

/// False if all its lanes wait for others, or are done.
bool Runner::run_warp(size_t first) {
  bool progress = false;
  for (size_t i = first; i < std::min(first + kLanes, count_); ++i) {
    if (threads_[i].state != State::kReady) continue;
    resume(threads_[i]);
    progress = true;
  }
  return release_warp(first) || progress;
}

void Runner::report_deadlock() const {
  std::string message = "threads wait for each other:";
  const Thread* last = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    const Thread& t = threads_[i];
    if (last != nullptr && last->state == t.state && same_site(last->site, t.site)) continue;
    last = &t;
    const char* where = t.state == State::kAtBarrier         ? " barrier "
                        : t.state == State::kInWarpOperation ? " warp "
                                                             : " waits ";
    message +=
        " from " + std::to_string(i) + (t.state == State::kDone ? " done" : where + place(t.site));
  }
  report(message);
}

bool Runner::release_waiting() {
  bool released = false;
  for (size_t i = 0; i < count_; ++i) {
    Thread& t = threads_[i];
    const bool waits = t.state == State::kWaiting || t.state == State::kWaitingOutside;
    if (!waits || !t.condition()) continue;
    t.condition = nullptr;
    t.state = State::kReady;
    released = true;
  }
  return released;
}

/// False if no thread waits for what another OS thread does, or none has done it for long.
bool Runner::pause_outside() {
  const bool waits =
      std::any_of(threads_.begin(), threads_.begin() + static_cast<ptrdiff_t>(count_),
                  [](const Thread& t) { return t.state == State::kWaitingOutside; });
  const auto now = std::chrono::steady_clock::now();
  if (pauses_++ == 0) paused_since_ = now;
  if (!waits || now - paused_since_ > kLongestPause) return false;
  std::function<void()> pause;
  {
    const std::lock_guard lock(outside_mutex);
    pause = outside_pause;
  }
  if (pause) pause();
  std::this_thread::yield();
  return true;
}

bool Runner::do_late_work() {
  if (late_work_.empty()) return false;
  size_t next = schedule == Schedule::kBackward ? late_work_.size() - 1 : 0;
  if (schedule == Schedule::kShuffled) next = random_() % late_work_.size();
  const auto work = std::move(late_work_[next]);
  late_work_.erase(late_work_.begin() + static_cast<ptrdiff_t>(next));
  work();
  return true;
}

/// Finishes the operations of a warp that all their lanes have reached.
bool Runner::release_warp(size_t first) {
  const size_t end = std::min(first + kLanes, count_);
  bool released = false;
  for (size_t i = first; i < end; ++i) {
    const Thread& leader = threads_[i];
    if (leader.state != State::kInWarpOperation) continue;
    void* payloads[kLanes] = {};
    uint32_t arrived = 0;
    for (size_t j = first; j < end; ++j) {
      const Thread& t = threads_[j];
      if (t.state != State::kInWarpOperation || t.lanes != leader.lanes ||
          t.operation != leader.operation || !same_site(t.site, leader.site)) {
        continue;
      }
      payloads[j - first] = t.payload;
      arrived |= 1u << (j - first);
    }
    if ((arrived & leader.lanes) != leader.lanes) continue;
    if (const char* error = leader.operation(payloads)) report(place(leader.site) + ": " + error);
    const uint32_t lanes = leader.lanes;
    for (size_t j = first; j < end; ++j) {
      if (((lanes >> (j - first)) & 1u) != 0) threads_[j].state = State::kReady;
    }
    released = true;
  }
  return released;
}

bool Runner::release_barrier() {
  const auto begin = threads_.begin();
  const auto end = begin + static_cast<ptrdiff_t>(count_);
  if (!std::all_of(begin, end, [](const Thread& t) { return t.state == State::kAtBarrier; })) {
    return false;
  }
  for (auto t = begin; t != end; ++t) {
    if (!same_site(t->site, begin->site)) {
      report("threads are at different barriers: " + place(begin->site) + " and " + place(t->site));
    }
    t->state = State::kReady;
  }
  return true;
}

void finish(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    if (copy.zeros > 0) std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
  }
}

}  // namespace

void set_schedule(Schedule schedule) { runner().schedule = schedule; }

void run_grid(const char* name, Dim3 grid, Dim3 block, size_t shared_bytes,
              const std::function<void()>& kernel) {
  runner().run(name, grid, block, shared_bytes, kernel);
}

char* dynamic_shared_memory() { return runner().shared(); }
size_t shared_memory_bytes() { return runner().shared_bytes(); }
size_t block_threads() { return runner().threads(); }
unsigned thread_number() { return runner().current().number; }
void fail(const char* error, const std::source_location& site) { runner().fail(error, site); }
void do_late(std::function<void()> work) { runner().late_work().push_back(std::move(work)); }

BlockState& block_state(std::unique_ptr<BlockState> (*make)()) {
  auto& state = runner().extension();
  if (state == nullptr) state = make();
  return *state;
}

namespace {

void wait_in(State state, std::function<bool()> condition, const std::source_location& site) {
  Thread& thread = runner().current();
  thread.state = state;
  thread.condition = std::move(condition);
  thread.site = site;
  thread.fiber.suspend();
}

}  // namespace

void wait_until(std::function<bool()> condition, const std::source_location& site) {
  wait_in(State::kWaiting, std::move(condition), site);
}

void start_next() { runner().next_started() = true; }

bool wait_outside(std::function<bool()> condition, const std::source_location& site) {
  if (runner().next_started()) fail("waits for another GPU behind start_next()", site);
  const auto end = std::chrono::steady_clock::now() + longest_wait_outside.load();
  bool come = false;
  const auto is_over = [&] {
    come = condition();
    return come || std::chrono::steady_clock::now() > end;
  };
  wait_in(State::kWaitingOutside, is_over, site);
  return come;
}

void set_longest_wait_outside(std::chrono::milliseconds longest) { longest_wait_outside = longest; }

void set_pause_outside(std::function<void()> pause) {
  const std::lock_guard lock(outside_mutex);
  outside_pause = std::move(pause);
}

void block_barrier(const std::source_location& site) {
  Thread& thread = runner().current();
  thread.state = State::kAtBarrier;
  thread.site = site;
  thread.fiber.suspend();
}

void warp_collective(uint32_t lanes, WarpOperation operation, void* payload,
                     const std::source_location& site) {
  Thread& thread = runner().current();
  if (((lanes >> (thread.number % kLanes)) & 1u) == 0) {
    runner().fail("the mask leaves out the calling lane", site);
  }
  thread.state = State::kInWarpOperation;
  thread.lanes = lanes;
  thread.operation = operation;
  thread.payload = payload;
  thread.site = site;
  thread.fiber.suspend();
}

void queue_copy(void* to, const void* from, size_t bytes, size_t zeros) {
  runner().current().open_copies.push_back({to, from, bytes, zeros});
}

void commit_copies() {
  Thread& thread = runner().current();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void wait_copies(size_t newest_groups_left) {
  auto& groups = runner().current().copy_groups;
  for (; groups.size() > newest_groups_left; groups.pop_front()) finish(groups.front());
}

}  // namespace headrace::emulation
