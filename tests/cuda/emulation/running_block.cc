#include "running_block.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace headrace::emulation {
namespace {

constexpr std::align_val_t kSharedAlign{1024};

}  // namespace

std::string place(const std::source_location& site) {
  const char* file = std::strrchr(site.file_name(), '/');
  return std::string(file == nullptr ? site.file_name() : file + 1) + ":" +
         std::to_string(site.line());
}

bool same_site_elsewhere(const std::source_location& a, const std::source_location& b) {
  return std::strcmp(a.file_name(), b.file_name()) == 0;
}

void RunningBlock::FreeShared::operator()(char* memory) const {
  ::operator delete(memory, kSharedAlign);
}

void RunningBlock::start(const Place& place, Dim3 shape, size_t shared_bytes, void (*entry)(void*),
                         void* argument) {
  place_ = place;
  if (shared_ == nullptr || shared_bytes_ != shared_bytes) {  // to the byte: sanitizers see its end
    shared_.reset(static_cast<char*>(::operator new(shared_bytes, kSharedAlign)));
  }
  std::memset(shared_.get(), 0xff, shared_bytes);
  shared_bytes_ = shared_bytes;
  extension.reset();
  next_started = false;
  count_ = size_t{shape.x} * shape.y * shape.z;
  for (size_t i = 0; i < count_; ++i) {
    const auto n = static_cast<unsigned>(i);
    Thread& thread = threads_[i];
    thread.block = this;
    thread.number = n;
    thread.index = {n % shape.x, n / shape.x % shape.y, n / shape.x / shape.y};
    thread.state = State::kReady;
    thread.condition = nullptr;
    thread.copy_groups.clear();
    thread.open_copies.clear();
    thread.turns = {};
    thread.fiber.start(stacks_.get() + i * kStackBytes, kStackBytes, entry, argument);
  }
}

void RunningBlock::order_threads(Schedule schedule, std::mt19937& random) {
  order_.resize(count_);
  std::iota(order_.begin(), order_.end(), 0u);
  if (schedule == Schedule::kBackward) std::reverse(order_.begin(), order_.end());
  if (schedule == Schedule::kShuffled) std::shuffle(order_.begin(), order_.end(), random);
}

bool RunningBlock::over() {
  return std::all_of(begin(), end(), [](const Thread& t) { return t.state == State::kDone; });
}

void RunningBlock::report(const std::string& message) const {
  const Dim3& at = place_.in_grid;
  throw EmulationError(std::string(place_.kernel) + ", block (" + std::to_string(at.x) + ", " +
                       std::to_string(at.y) + ", " + std::to_string(at.z) + "): " + message);
}

std::string RunningBlock::waits() {
  std::string message;
  const Thread* last = nullptr;
  for (const Thread& t : *this) {
    if (last != nullptr && last->state == t.state && same_site(last->site, t.site)) continue;
    last = &t;
    const char* where = t.state == State::kAtBarrier         ? " barrier "
                        : t.state == State::kInWarpOperation ? " warp "
                                                             : " waits ";
    message += " from " + std::to_string(t.number) +
               (t.state == State::kDone ? " done" : where + emulation::place(t.site));
  }
  return message;
}

bool RunningBlock::release() {
  bool released = false;
  for (size_t first = 0; first < count_; first += kLanes) released |= release_warp(first);
  released |= release_barrier();
  return release_waiting() || released;
}

bool RunningBlock::release_waiting() {
  bool released = false;
  for (Thread& t : *this) {
    const bool waits = t.state == State::kWaiting || t.state == State::kWaitingOutside;
    if (!waits || !t.condition()) continue;
    t.condition = nullptr;
    t.state = State::kReady;
    released = true;
  }
  return released;
}

/// Finishes the operations of a warp that all their lanes have reached.
bool RunningBlock::release_warp(size_t first) {
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
    if (const char* error = leader.operation(payloads)) {
      report(emulation::place(leader.site) + ": " + error);
    }
    const uint32_t lanes = leader.lanes;
    for (size_t j = first; j < end; ++j) {
      if (((lanes >> (j - first)) & 1u) != 0) threads_[j].state = State::kReady;
    }
    released = true;
  }
  return released;
}

bool RunningBlock::release_barrier() {
  if (!std::all_of(begin(), end(), [](const Thread& t) { return t.state == State::kAtBarrier; })) {
    return false;
  }
  for (Thread& t : *this) {
    if (!same_site(t.site, begin()->site)) {
      report("threads are at different barriers: " + emulation::place(begin()->site) + " and " +
             emulation::place(t.site));
    }
    t.state = State::kReady;
  }
  return true;
}

}  // namespace headrace::emulation
