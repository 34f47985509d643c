#pragma once

// A stream of the fake CUDA runtime: a queue, and who runs it.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace headrace::cuda {

class FakeCudaApi;

/// A stream of the fake runtime: what is queued runs in order, when somebody waits for it.
struct FakeStream {
  using Work = std::function<void()>;

  FakeStream(FakeCudaApi* owner, int of_device) : api(owner), device(of_device) {}
  ~FakeStream() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    kicked.notify_one();
    if (runner.joinable()) runner.join();
  }
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  FakeCudaApi* api;
  const int device;
  std::recursive_mutex running;  // held by who runs what is queued
  std::mutex mutex;              // guards what follows; taken behind the API's, never before
  std::deque<Work> queue;
  uint64_t num_put = 0, num_begun = 0, num_done = 0;
  bool capturing = false;
  std::vector<Work> captured;
  std::condition_variable kicked;
  bool ends = false;
  std::thread runner;  // runs what is queued when another device waits for it

  void put(Work work) {
    const std::lock_guard lock(mutex);
    if (capturing) {
      captured.push_back(std::move(work));
    } else {
      queue.push_back(std::move(work));
      ++num_put;
    }
  }
  /// Runs the first `end` of all that was ever put.
  void drain(uint64_t end = UINT64_MAX) {
    const std::lock_guard runs(running);
    while (run_next(end)) {
    }
  }
  /// Until the first `end` are done, by whoever runs them: who does may be waiting for what waits
  /// here, behind them.
  void reach(uint64_t end) {
    while (!has_done(end)) {
      if (const std::unique_lock runs(running, std::try_to_lock); runs) {
        drain(end);
      } else {
        std::this_thread::yield();
      }
    }
  }
  /// Nothing more is run; what is being run has ended.
  void abandon() {
    {
      const std::lock_guard lock(mutex);
      num_begun += queue.size();
      num_done += queue.size();
      queue.clear();
    }
    const std::lock_guard runs(running);
  }
  bool has_done(uint64_t end) {
    const std::lock_guard lock(mutex);
    return num_done >= end;
  }
  bool is_capturing() {
    const std::lock_guard lock(mutex);
    return capturing;
  }
  bool is_empty() {
    const std::lock_guard lock(mutex);
    return queue.empty();
  }
  void kick() {
    const std::lock_guard lock(mutex);
    if (queue.empty() || ends) return;
    if (!runner.joinable()) runner = std::thread([this] { run_when_kicked(); });
    kicked.notify_one();
  }

 private:
  bool run_next(uint64_t end) {
    Work work;
    {
      const std::lock_guard lock(mutex);
      if (queue.empty() || num_begun >= end) return false;
      work = std::move(queue.front());
      queue.pop_front();
      ++num_begun;
    }
    const Done done(*this);  // also of what throws
    work();
    return true;
  }
  class Done {
   public:
    explicit Done(FakeStream& stream) : stream_(stream) {}
    ~Done() {
      const std::lock_guard lock(stream_.mutex);
      ++stream_.num_done;
    }
    Done(const Done&) = delete;
    Done& operator=(const Done&) = delete;

   private:
    FakeStream& stream_;
  };
  void run_when_kicked() {
    for (;;) {
      {
        std::unique_lock lock(mutex);
        kicked.wait(lock, [this] { return ends || !queue.empty(); });
        if (ends) return;
      }
      try {
        drain();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "work of a device that another one waits for: " << error.what();
      }
      std::this_thread::yield();
    }
  }
};

}  // namespace headrace::cuda
