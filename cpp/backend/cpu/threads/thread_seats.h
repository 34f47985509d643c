#pragma once

// Where the threads of a pool run while other processes want the same cores.
//
// A loop ends when its last range does, so a thread that the system takes off its core with a range
// in hand holds up all others, for milliseconds each time. And a thread that was put on another's
// core stays there, if both spend their waiting asleep. So each thread has a seat, the core it was
// last seen on; two threads on one core part again; and threads that wait take one that is off its
// core onto theirs, where it ends its range at once.
//
// A thread is moved by narrowing its affinity to one core and widening it again. Who is taken off
// its core between the two leaves it narrow for that long, and what starts a thread or a process
// then passes it on. So only the pool's own threads are moved, which start nothing, and the thread
// that is known to drive the pool, which leaves no loop while its affinity is being changed: of any
// other caller not even the seat is looked at.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace headrace {

class ThreadSeats {
 public:
  /// Does nothing if `use` is false, if there are more threads than this process has cores, or only
  /// one. Not said: used where it is known to win.
  explicit ThreadSeats(int32_t num_threads, std::optional<bool> use = std::nullopt);

  /// Where it has been measured.
  static constexpr bool is_known_to_win(int32_t num_threads, int32_t cores) {
    return num_threads == 2 && cores == 2;
  }

  /// By the thread that will be thread 0 from now on, and is the engine's own.
  void adopt_caller();

  /// By the thread itself: about to take ranges.
  void begin_work(int32_t thread);
  /// By the thread itself: it holds no range.
  void end_work(int32_t thread);

  /// By thread 0 at the end of a loop: returns when nobody changes its affinity.
  void leave_loop() const;

  /// By a thread that waits for others and is about to sleep: those that hold a range but don't run
  /// come to its core.
  void help_stalled(int32_t waiting_thread);
  /// By thread 0, at the end of a loop that it slept for: if that took long although it helped,
  /// those that kept it waiting rest for some time, as too little is left of their cores.
  void end_wait(int64_t waited_nanoseconds);
  /// By the thread itself: is it to leave loops to the others?
  bool is_resting(int32_t thread) const;

 private:
  enum class Move : uint8_t { kNone, kMoving, kMoved };
  struct alignas(64) Seat {
    std::atomic<int32_t> thread_id{0};
    std::atomic<int32_t> cpu{-1};
    std::atomic<bool> works{false};
    std::atomic<Move> move{Move::kNone};  ///< kMoving: some thread changes its affinity
    std::atomic<bool> was_helped{false};  ///< since thread 0 last waited
    std::atomic<int64_t> rests_until{0};  ///< steady clock, nanoseconds
  };

  bool stands_still(const Seat& seat) const;
  int32_t owner_of(int32_t cpu, int32_t but) const;
  int32_t free_cpu() const;
  void settle(int32_t thread);
  void choose_seat(int32_t thread, int32_t cpu);

  bool is_own(int32_t thread, int32_t thread_id) const;

  const int32_t num_threads_;
  bool enabled_;
  std::atomic<int32_t> driver_{0};  ///< id of the adopted caller
  std::unique_ptr<Seat[]> seats_;
};

}  // namespace headrace
