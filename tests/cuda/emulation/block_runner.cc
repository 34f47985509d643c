#include "block_runner.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_emulation.h"
#include "running_block.h"

namespace headrace::emulation {
namespace {

constexpr size_t kMaxSharedBytes = 227 << 10;
constexpr unsigned kMaxCluster = 8;
constexpr std::chrono::seconds kLongestPause(60);

class Runner {
 public:
  void run(const char* name, const Grid& grid, const std::function<void()>& kernel);

  Thread& current() { return *current_; }
  /// The running thread's, or the one whose threads are being released.
  RunningBlock& block() { return *block_; }
  RunningBlock& block(unsigned rank) { return *blocks_[rank]; }
  unsigned cluster_size() const { return cluster_; }
  /// Rounds of the cluster's barrier that are over.
  unsigned cluster_rounds() const { return cluster_rounds_; }
  void do_late(unsigned rank, std::function<void()> work, const std::source_location& site) {
    late_work_.push_back({rank, std::move(work), site});
  }
  /// Leaves the running thread for good: nothing on its stack may own memory.
  [[noreturn]] void fail(const char* error, const std::source_location& site) {
    error_ = error;
    current_->site = site;
    current_->fiber.suspend();
    __builtin_trap();
  }

  /// kShuffled draws the same numbers after each call.
  void set_schedule(Schedule schedule) {
    schedule_ = schedule;
    random_.seed(std::mt19937::default_seed);
  }

 private:
  struct LateWork {
    unsigned rank;
    std::function<void()> work;
    std::source_location site;
  };

  void start_cluster(Dim3 first);
  void run_cluster();
  bool run_a_block();
  bool run_threads();
  bool run_warp(size_t first);
  void order_blocks();
  void enter(RunningBlock& block);
  bool release_cluster();
  bool do_late_work();
  bool pause_outside();
  bool all_over();
  void end_block();
  [[noreturn]] void report_deadlock();
  void resume(Thread& thread);
  static void thread_main(void* runner);

  const char* name_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  Grid grid_;
  std::vector<std::unique_ptr<RunningBlock>> blocks_;  // as many as a cluster ever had
  unsigned cluster_ = 1;
  unsigned cluster_rounds_ = 0;
  std::vector<unsigned> block_order_;
  std::deque<LateWork> late_work_;
  Thread* current_ = nullptr;
  RunningBlock* block_ = nullptr;
  const char* error_ = nullptr;
  Schedule schedule_ = Schedule::kForward;
  std::mt19937 random_;
  uint64_t pauses_ = 0;  // since a thread ran
  std::chrono::steady_clock::time_point paused_since_;
};

std::atomic<std::chrono::milliseconds> longest_wait_outside{std::chrono::seconds(120)};
std::mutex outside_mutex;
std::function<void()> outside_pause;

constinit thread_local Runner* this_threads_runner = nullptr;

[[gnu::noinline]] Runner& make_runner() {
  thread_local const std::unique_ptr<Runner> owner = std::make_unique<Runner>();
  this_threads_runner = owner.get();
  return *owner;
}

Runner& runner() { return this_threads_runner != nullptr ? *this_threads_runner : make_runner(); }

void check(const char* name, const Grid& grid) {
  const Dim3 &blocks = grid.blocks, &block = grid.threads;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool fits = threads >= 1 && threads <= kMaxThreads && block.z <= 64 && blocks.x >= 1 &&
                    blocks.y >= 1 && blocks.z >= 1 && blocks.x <= 0x7fffffffu &&
                    blocks.y <= 65535 && blocks.z <= 65535 &&
                    grid.shared_bytes <= kMaxSharedBytes && grid.cluster >= 1 &&
                    grid.cluster <= kMaxCluster && blocks.x % grid.cluster == 0;
  if (!fits) {
    throw EmulationError(
        std::string(name) + ": no GPU takes this launch: " + std::to_string(blocks.x) + " x " +
        std::to_string(blocks.y) + " x " + std::to_string(blocks.z) + " blocks of " +
        std::to_string(threads) + " threads with " + std::to_string(grid.shared_bytes) +
        " bytes shared, in clusters of " + std::to_string(grid.cluster));
  }
}

void Runner::run(const char* name, const Grid& grid, const std::function<void()>& kernel) {
  check(name, grid);
  name_ = name;
  kernel_ = &kernel;
  grid_ = grid;
  cluster_ = grid.cluster;
  gridDim = grid.blocks;
  blockDim = grid.threads;
  while (blocks_.size() < cluster_) blocks_.push_back(std::make_unique<RunningBlock>());
  for (unsigned z = 0; z < grid.blocks.z; ++z) {
    for (unsigned y = 0; y < grid.blocks.y; ++y) {
      for (unsigned x = 0; x < grid.blocks.x; x += cluster_) {
        start_cluster({x, y, z});
        run_cluster();
      }
    }
  }
}

void Runner::start_cluster(Dim3 first) {
  late_work_.clear();
  error_ = nullptr;
  cluster_rounds_ = 0;
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    blocks_[rank]->start({name_, {first.x + rank, first.y, first.z}, rank}, grid_.threads,
                         grid_.shared_bytes, &Runner::thread_main, this);
    blocks_[rank]->order_threads(schedule_, random_);
  }
  order_blocks();
}

void Runner::order_blocks() {
  block_order_.resize(cluster_);
  for (unsigned i = 0; i < cluster_; ++i) {
    block_order_[i] = schedule_ == Schedule::kBackward ? cluster_ - 1 - i : i;
  }
  if (schedule_ == Schedule::kShuffled && cluster_ > 1) {
    std::shuffle(block_order_.begin(), block_order_.end(), random_);
  }
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
  if (error_ != nullptr) block_->report(place(thread.site) + ": " + error_);
}

void Runner::enter(RunningBlock& block) {
  block_ = &block;
  blockIdx = block.place().in_grid;
}

bool Runner::all_over() {
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    if (!blocks_[rank]->over()) return false;
  }
  return true;
}

void Runner::run_cluster() {
  while (!all_over()) {
    if (run_a_block()) {
      pauses_ = 0;
      continue;
    }
    order_blocks();
    if (!release_cluster() && !do_late_work() && !pause_outside()) report_deadlock();
  }
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    enter(*blocks_[rank]);
    const char* error = block_->extension == nullptr ? nullptr : block_->extension->at_end();
    if (error != nullptr) block_->report(error);
  }
}

/// Some threads of the block furthest ahead in the order that can go on: false if none can.
bool Runner::run_a_block() {
  for (const unsigned rank : block_order_) {
    enter(*blocks_[rank]);
    if (!run_threads()) continue;
    if (block_->over()) end_block();
    return true;
  }
  return false;
}

bool Runner::run_threads() {
  bool progress = false;
  const size_t count = schedule_ == Schedule::kWarpsAhead ? block_->num_threads() : 0;
  for (size_t first = 0; first < count; first += kLanes) {
    while (run_warp(first)) progress = true;
  }
  for (const unsigned number : block_->order()) {
    Thread& thread = block_->thread(number);
    if (thread.state != State::kReady) continue;
    resume(thread);
    progress = true;
  }
  return block_->release() || progress;
}

/// False if all its lanes wait for others, or are done.
bool Runner::run_warp(size_t first) {
  bool progress = false;
  for (size_t i = first; i < std::min(first + kLanes, block_->num_threads()); ++i) {
    Thread& thread = block_->thread(static_cast<unsigned>(i));
    if (thread.state != State::kReady) continue;
    resume(thread);
    progress = true;
  }
  return block_->release_warp(first) || progress;
}

void Runner::end_block() {
  for (const LateWork& late : late_work_) {
    if (late.rank != block_->place().rank) continue;
    block_->report(place(late.site) + ": the block has ended before this copy into it has landed");
  }
}

void Runner::report_deadlock() {
  std::string message = "threads wait for each other:";
  RunningBlock* first = nullptr;
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    RunningBlock& block = *blocks_[rank];
    if (first == nullptr && !block.over()) first = &block;
    if (cluster_ > 1) message += " in block " + std::to_string(rank) + " of the cluster";
    message += block.waits();
  }
  first->report(message);
}

/// A round of the cluster's barrier, once all threads that haven't ended are there.
bool Runner::release_cluster() {
  const Thread* first = nullptr;
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    for (const Thread& t : *blocks_[rank]) {
      if (t.state == State::kDone) continue;
      if (t.turns.arrivals == cluster_rounds_) return false;
      if (first == nullptr) first = &t;
      if (!same_site(t.arrival, first->arrival)) {
        blocks_[rank]->report("threads are at different barriers of the cluster: " +
                              place(first->arrival) + " and " + place(t.arrival));
      }
    }
  }
  ++cluster_rounds_;
  return true;
}

/// False if no thread waits for what another OS thread does, or none has done it for long.
bool Runner::pause_outside() {
  bool waits = false;
  for (unsigned rank = 0; rank < cluster_; ++rank) {
    for (const Thread& t : *blocks_[rank]) waits |= t.state == State::kWaitingOutside;
  }
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
  size_t next = schedule_ == Schedule::kBackward ? late_work_.size() - 1 : 0;
  if (schedule_ == Schedule::kShuffled) next = random_() % late_work_.size();
  const auto work = std::move(late_work_[next].work);
  late_work_.erase(late_work_.begin() + static_cast<ptrdiff_t>(next));
  work();
  return true;
}

void finish(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    if (copy.zeros > 0) std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
  }
}

void wait_in(State state, std::function<bool()> condition, const std::source_location& site) {
  Thread& thread = runner().current();
  thread.state = state;
  thread.condition = std::move(condition);
  thread.site = site;
  thread.fiber.suspend();
}

}  // namespace

void set_schedule(Schedule schedule) { runner().set_schedule(schedule); }

void run_grid(const char* name, const Grid& grid, const std::function<void()>& kernel) {
  runner().run(name, grid, kernel);
}

char* dynamic_shared_memory() { return runner().block().shared(); }
size_t shared_memory_bytes() { return runner().block().shared_bytes(); }
char* shared_memory_of(unsigned rank) { return runner().block(rank).shared(); }
size_t block_threads() { return runner().block().num_threads(); }
unsigned thread_number() { return runner().current().number; }
void fail(const char* error, const std::source_location& site) { runner().fail(error, site); }
void do_late(unsigned rank, std::function<void()> work, const std::source_location& site) {
  runner().do_late(rank, std::move(work), site);
}

BlockState& block_state(unsigned rank, std::unique_ptr<BlockState> (*make)()) {
  auto& state = runner().block(rank).extension;
  if (state == nullptr) state = make();
  return *state;
}

unsigned cluster_rank() { return runner().block().place().rank; }
unsigned cluster_size() { return runner().cluster_size(); }
bool block_is_over(unsigned rank) { return runner().block(rank).over(); }
ClusterTurns cluster_turns() { return runner().current().turns; }

unsigned cluster_waits() {
  unsigned most = 0;
  for (const Thread& t : runner().block()) most = std::max(most, t.turns.waits);
  return most;
}

void cluster_arrive(const std::source_location& site) {
  Thread& thread = runner().current();
  if (thread.turns.arrivals != thread.turns.waits) {
    fail("arrives at the cluster's barrier again without a wait", site);
  }
  ++thread.turns.arrivals;
  thread.arrival = site;
}

void cluster_wait(const std::source_location& site) {
  Thread& thread = runner().current();
  if (thread.turns.arrivals == thread.turns.waits) {
    fail("waits at the cluster's barrier without having arrived", site);
  }
  const unsigned round = thread.turns.waits;
  wait_until([round] { return runner().cluster_rounds() > round; }, site);
  ++thread.turns.waits;
}

void wait_until(std::function<bool()> condition, const std::source_location& site) {
  wait_in(State::kWaiting, std::move(condition), site);
}

void start_next() { runner().block().next_started = true; }

bool wait_outside(std::function<bool()> condition, const std::source_location& site) {
  if (runner().block().next_started) fail("waits for another GPU behind start_next()", site);
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
