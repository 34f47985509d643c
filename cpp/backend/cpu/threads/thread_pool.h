#pragma once

// A persistent pool of threads for data-parallel loops. The caller works too, as thread 0.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "backend/host/cpu_affinity.h"
#include "base/first_failure.h"

namespace headrace {

/// Threads of a pool that run on the same cores, and memory near them.
struct ThreadGroup {
  int32_t threads = 1;
  CpuMask cpus;  ///< those they may run on; none, of a single group: any
};

/// Owned and driven by one thread at a time; loops don't nest. Workers spin for some tens of
/// microseconds after a loop, then sleep until the next.
class ThreadPool {
 public:
  /// `num_threads` >= 1, the caller's included: starts num_threads - 1 threads. Throws Error(kIo)
  /// if the system refuses one of them.
  explicit ThreadPool(int32_t num_threads);
  /// Threads in groups, each confined to its cores. Of every loop a group has one contiguous part,
  /// the same one in each loop of the same count, and it helps no other group with theirs. The
  /// caller belongs to the first group: see adopt_caller().
  explicit ThreadPool(const std::vector<ThreadGroup>& groups);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const noexcept { return num_threads_; }
  int32_t num_groups() const noexcept { return static_cast<int32_t>(groups_.size()); }
  /// Indices [begin, end) of a loop over `count` with grain 1 that a group has.
  struct Range {
    int64_t begin, end;
  };
  Range part_of(int32_t group, int64_t count) const noexcept;
  /// By the engine's own thread that will drive the pool from now on: if groups have cores, it is
  /// confined to those of the first group.
  void adopt_caller() noexcept;

  /// The first index that `thread` takes of a loop over `count` with grain 1.
  int64_t first_of(int32_t thread, int64_t count) const noexcept;
  /// From now on `thread` fetches [data, data + bytes) into its caches while it waits for others,
  /// once. Nothing is read: memory that is gone by then does no harm. By the driving thread,
  /// between loops.
  void read_ahead(int32_t thread, const void* data, size_t bytes) noexcept;

  /// Calls body(begin, end, thread) on ranges that cover [0, count) once, each at most `grain`
  /// long, and returns when all are done. Each thread is given a contiguous share, which it takes
  /// in order; a thread that is through helps the others, so which thread runs a range is not
  /// determined: results must not depend on it. `thread` is below num_threads() and no two ranges
  /// run at once with the same one. The first exception of a body is thrown again here, after all
  /// other ranges have run.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) {
    if (count <= 0) return;
    if (num_threads_ == 1 || count <= grain) {
      for (int64_t i = 0; i < count; i += grain) {
        body(i, i + grain < count ? i + grain : count, 0);
      }
      return;
    }
    run({[](const void* context, int64_t begin, int64_t end, int32_t thread) {
           (*static_cast<const Body*>(context))(begin, end, thread);
         },
         &body, count, grain, 1});
  }

  /// Calls body(round, i, thread) for each i in [0, count) in each of `rounds`. Whatever the
  /// rounds, a group has the part of [0, count) that it has in a loop of that count. Else as above.
  template <class Body>
  void parallel_rounds(int64_t rounds, int64_t count, const Body& body) {
    if (rounds * count <= 0) return;
    if (groups_.size() == 1) {
      return parallel_for(rounds * count, 1, [&](int64_t task, int64_t, int32_t thread) {
        body(task / count, task % count, thread);
      });
    }
    const auto find = [&](int64_t task, int64_t, int32_t thread) {
      const Range part = part_of(group_of(thread), count);
      const int64_t local = task - rounds * part.begin;
      const int64_t width = part.end - part.begin;
      body(local / width, part.begin + local % width, thread);
    };
    using Find = decltype(find);
    run({[](const void* context, int64_t begin, int64_t end, int32_t thread) {
           (*static_cast<const Find*>(context))(begin, end, thread);
         },
         &find, rounds * count, 1, rounds});
  }

 private:
  struct Loop {
    void (*call)(const void* context, int64_t begin, int64_t end, int32_t thread);
    const void* context;
    int64_t count;
    int64_t grain;
    int64_t rounds;
  };
  /// A thread's share: chunks [next, end). Both words carry the loop's number in their high half,
  /// so that a thread that wakes late cannot take a chunk of another loop.
  struct alignas(64) Share {
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> end{0};
  };

  /// What a thread is to fetch. Plain hints: mixed ones of two calls fetch something useless.
  struct alignas(64) Ahead {
    std::atomic<uint32_t> number{0};  ///< of the call
    std::atomic<const char*> data{nullptr};
    std::atomic<size_t> bytes{0};
  };
  /// A thread's own progress.
  struct alignas(64) Fetching {
    uint32_t number = 0;
    const char* next = nullptr;
    const char* end = nullptr;
  };

  struct Group {
    int32_t first_thread, end_thread;
    CpuMask cpus;
  };

  static std::vector<Group> line_up(const std::vector<ThreadGroup>& groups);
  void start_workers();
  void end_workers();
  int32_t group_of(int32_t thread) const noexcept;
  void run(const Loop& loop);
  void share_out(uint32_t number, int64_t chunks, int64_t rounds);
  void work(uint32_t number, int32_t thread);
  bool run_chunk(Share& share, uint32_t number, int32_t thread);
  void worker(int32_t thread);
  template <class Done>
  bool spin(int32_t thread, const Done& done);
  void fetch_some(int32_t thread) noexcept;
  bool wait_for_loop(uint32_t last_number, int32_t thread);
  void wait_for_chunks();

  std::vector<Group> groups_;
  const bool confined_;  ///< each group to its cores
  const int32_t num_threads_;
  const int64_t spin_nanoseconds_;
  Loop loop_{};
  std::unique_ptr<Share[]> shares_;
  std::unique_ptr<Ahead[]> aheads_;
  std::vector<Fetching> fetchings_;                   ///< each used by its thread alone
  alignas(64) std::atomic<uint32_t> number_{0};       ///< of the current loop; workers sleep on it
  alignas(64) std::atomic<uint32_t> chunks_left_{0};  ///< of it; the caller sleeps on it
  std::atomic<int32_t> sleeping_workers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  FirstFailure failure_;
  std::atomic<bool> failed_{false};
  std::vector<std::thread> threads_;
};

}  // namespace headrace
