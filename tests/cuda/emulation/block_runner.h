#pragma once

// Runs emulated kernels: clusters of blocks one after the other, each thread of a block a fiber,
// all on the calling OS thread. A thread runs until it waits at a barrier or a warp-wide operation,
// or is done, so that without the synchronization that a kernel needs its threads see stale data:
// every test should run under each Schedule. Of a cluster's blocks one goes ahead of all others as
// far as it can.
//
// Finds, and reports by EmulationError: barriers and warp operations that not all threads named
// reach (divergence), reads from lanes that take no part, configurations that no GPU accepts,
// blocks that end before copies into them have landed. hopper.h adds what sm_90a has. Shared memory
// starts as 0xff bytes (NaN); out-of-bounds and misaligned accesses are the sanitizers' job.

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

/// The order in which a block's threads get to run between synchronizations, and which of a
/// cluster's blocks is ahead: the first, the last, or any, another one each time all wait.
/// kWarpsAhead: a warp goes as far as it can before the next one begins, which finds accesses that
/// only a barrier would order; blocks as in kForward.
enum class Schedule { kForward, kBackward, kWarpsAhead, kShuffled };

/// For launches from now on. kShuffled begins with the same numbers after each call, so that what a
/// test meets doesn't depend on those before it.
void set_schedule(Schedule schedule);

/// Of a launch. `cluster`: blocks of one, along x.
struct Grid {
  Dim3 blocks, threads;
  size_t shared_bytes = 0;
  unsigned cluster = 1;
};

/// Runs `kernel` once for each thread of the grid. Throws EmulationError.
void run_grid(const char* name, const Grid& grid, const std::function<void()>& kernel);

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
/// Work that the hardware does by itself some time, on the shared memory of block `rank` of the
/// cluster: done when all threads wait, in the order that the schedule says. The block must not end
/// before.
void do_late(unsigned rank, std::function<void()> work, const std::source_location& site);

/// What an extension keeps of a block, made when it is first asked for.
class BlockState {
 public:
  virtual ~BlockState() = default;
  /// Once all threads of the cluster are done: null, or what is wrong.
  virtual const char* at_end() = 0;
};
/// Of block `rank` of the cluster.
BlockState& block_state(unsigned rank, std::unique_ptr<BlockState> (*make)());
/// Threads of a block, and its dynamic shared memory.
size_t block_threads();
size_t shared_memory_bytes();
char* shared_memory_of(unsigned rank);

/// The running block's.
unsigned cluster_rank();
unsigned cluster_size();
/// Have all its threads ended?
bool block_is_over(unsigned rank);

/// The barrier of all threads of the cluster that haven't ended.
void cluster_arrive(const std::source_location& site);
void cluster_wait(const std::source_location& site);
/// How often a thread has done each.
struct ClusterTurns {
  unsigned arrivals = 0, waits = 0;
};
ClusterTurns cluster_turns();
/// The most waits of any thread of the running block.
unsigned cluster_waits();

/// A copy that takes effect at the wait for its group.
void queue_copy(void* to, const void* from, size_t bytes, size_t zeros);
void commit_copies();
void wait_copies(size_t newest_groups_left);

}  // namespace headrace::emulation
