#pragma once

// Runs emulated kernels: blocks one after the other, each thread of a block a fiber, all on the
// calling OS thread. A thread runs until it waits at a barrier or a warp-wide operation, or is
// done, so that without the synchronization that a kernel needs its threads see stale data: every
// test should run under each Schedule.
//
// Finds, and reports by EmulationError: barriers and warp operations that not all threads named
// reach (divergence), reads from lanes that take no part, configurations that no GPU accepts.
// Shared memory starts as 0xff bytes (NaN); out-of-bounds and misaligned accesses are the
// sanitizers' job.

#include <cstddef>
#include <cstdint>
#include <functional>
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
enum class Schedule { kForward, kBackward, kShuffled };

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

/// A copy that takes effect at the wait for its group.
void queue_copy(void* to, const void* from, size_t bytes, size_t zeros);
void commit_copies();
void wait_copies(size_t newest_groups_left);

}  // namespace headrace::emulation
