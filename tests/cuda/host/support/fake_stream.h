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

#include "cuda/host/support/fake_cuda_api.h"

namespace headrace::cuda {

using Work = std::function<void()>;

inline thread_local int current_device_of_thread = 0;

struct FakeStream {
  explicit FakeStream(FakeCudaApi* owner) : api(owner), device(current_device_of_thread) {}
  ~FakeStream() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    kicked.notify_one();
    if (runner.joinable()) runner.join();
  }

  FakeCudaApi* api;
  const int device;
  std::recursive_mutex running;  // held by who runs what is queued
  std::mutex mutex;              // guards what follows; taken behind the API's, never before
  std::deque<Work> queue;
  uint64_t num_put = 0, num_run = 0;
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
    for (;;) {
      Work work;
      {
        const std::lock_guard lock(mutex);
        if (queue.empty() || num_run >= end) return;
        work = std::move(queue.front());
        queue.pop_front();
        ++num_run;
      }
      work();
    }
  }
  /// Nothing more is run; what is being run has ended.
  void abandon() {
    {
      const std::lock_guard lock(mutex);
      num_run += queue.size();
      queue.clear();
    }
    const std::lock_guard runs(running);
  }
  bool has_run(uint64_t end) {
    const std::lock_guard lock(mutex);
    return num_run >= end;
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
