#pragma once

// Runs emulated kernels: blocks one after the other, each thread of a block a fiber, all on the
// calling OS thread. A thread runs until it waits at a barrier or a warp-wide operation, or is
// done, so that without the synchronization that a kernel needs its threads see stale data: every
// test should run under each Schedule.
//
// Finds, and reports by EmulationError: barriers and warp operations that not all threads named
// reach (divergence), reads from lanes that take no part, configurations that no GPU accepts.
// hopper.h adds what sm_90a has.
// Shared memory starts as 0xff bytes (NaN); out-of-bounds and misaligned accesses are the
// sanitizers' job.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>

namespace headrace::emulation {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

class EmulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The order in which a block's threads get to run between synchronizations.
/// kWarpsAhead: a warp goes as far as it can before the next one begins, which finds accesses that
/// only a barrier would order.
enum class Schedule { kForward, kBackward, kWarpsAhead, kShuffled };

/// For launches from now on.
void set_schedule(Schedule schedule);

/// Runs `kernel` once for each thread of the grid. Throws EmulationError.
void run_grid(const char* name, Dim3 grid, Dim3 block, size_t shared_bytes,
              const std::function<void()>& kernel);

// --- for the emulated intrinsics: called by the running thread --------------------------------

/// Does the work of a warp-wide operation: payloads[lane], null for lanes that take no part.
/// Returns null, or what is wrong.
using WarpOperation = const char* (*)(void* const* payloads);

void block_barrier(const std::source_location& site);
void warp_collective(uint32_t lanes, WarpOperation operation, void* payload,
                     const std::source_location& site);

/// The running thread's place in its block.
unsigned thread_number();
/// Ends the launch with this error. Nothing on the thread's stack may own memory.
[[noreturn]] void fail(const char* error, const std::source_location& site);

/// Suspends the thread until the condition, asked while no thread runs, is met.
void wait_until(std::function<bool()> condition, const std::source_location& site);
/// The same, but the condition is met by another OS thread, as by another GPU: other threads of the
/// block run on, and while none can, `pause_outside` is called again and again. An error in a block
/// that has let the next kernel start, whose blocks could take what the other GPU's kernels need.
/// False: it has taken longer than it may.
bool wait_outside(std::function<bool()> condition, const std::source_location& site);
/// The running block lets the next kernel start.
void start_next();
/// How long that may be: 120 seconds at first.
void set_longest_wait_outside(std::chrono::milliseconds longest);
/// What to do meanwhile; at first, and with null, the OS thread yields.
void set_pause_outside(std::function<void()> pause);
/// Work that the hardware does by itself some time: done when all threads wait, in the order that
/// the schedule says.
void do_late(std::function<void()> work);

/// What an extension keeps of a block, made when it is first asked for.
class BlockState {
 public:
  virtual ~BlockState() = default;
  /// Once all threads are done: null, or what is wrong.
  virtual const char* at_end() = 0;
};
BlockState& block_state(std::unique_ptr<BlockState> (*make)());
/// Threads of the running block, and its dynamic shared memory.
size_t block_threads();
size_t shared_memory_bytes();

/// A copy that takes effect at the wait for its group.
void queue_copy(void* to, const void* from, size_t bytes, size_t zeros);
void commit_copies();
void wait_copies(size_t newest_groups_left);

}  // namespace headrace::emulation
