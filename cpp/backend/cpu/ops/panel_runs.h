#pragma once

// How the products of rows with panels are shared out to threads.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/ops/panel_product.h"
#include "base/checked_math.h"

namespace headrace {

// Threads that count tasks off wait for each other's caches, as long as it takes to read some KiB:
// as few runs of panels as let a thread help another, and small ones of large weights.
inline constexpr int64_t kRunsPerThread = 4;
inline constexpr int64_t kRunBytes = 512 * 1024;

// Between what threads read together and what each of them writes: the hardware's prefetchers read
// beyond their stream, and would take lines away from the thread that is writing them.
inline constexpr int64_t kGapBytes = 16 * 1024;

// Of a thread's share of the next weight: what the wait for others at the end of an operation is
// worth, and a quarter of a second-level cache of 1 MiB or more.
inline constexpr int64_t kAheadBytes = 256 * 1024;

/// Runs that one matrix of `panels` is cut into.
inline int64_t count_runs(int64_t panels, int64_t panel_bytes, int64_t threads) {
  const int64_t large = ceil_div(panels * panel_bytes, kRunBytes);
  const int64_t runs = std::max(kRunsPerThread * threads, large / threads * threads);
  return std::min(runs, panels);
}

/// Bytes of a thread's accumulators for `rows` at once, and a gap.
inline int64_t accumulators_of(const PanelProduct& product, int64_t rows) {
  return rows * product.panel_cols() * static_cast<int64_t>(sizeof(float)) + kGapBytes;
}

}  // namespace headrace
