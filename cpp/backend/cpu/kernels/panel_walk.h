#pragma once

// How a panel meets all rows of a call: which weights stay close while rows pass over them, and
// what is fetched meanwhile. For the linear kernels.

#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

// Bytes of a panel that stay in the first-level cache while all tiles of rows pass over them. With
// few tiles smaller blocks let the hardware's prefetcher run through the computation of the others.
constexpr int64_t kBlockBytes = 16 * 1024;
constexpr int64_t kSmallBlockBytes = 8 * 1024;

/// The sizes of a panel and of packed rows.
struct PanelSizes {
  int64_t group_bytes;  ///< of PanelTask::panel, for one of its k_groups
  int64_t group_steps;  ///< that a tile takes through a group: each may fetch
  int64_t step_lines;   ///< cache lines of weights in a step: a power of two, at most 4
  int64_t row_bytes;    ///< of a packed row
};

/// Groups [first, last) of a panel for one tile of rows.
struct TileRun {
  int64_t row;  ///< the tile's first
  int64_t rows;
  int64_t first, last;
  const char* activations;  ///< of the tile
  const char* fetch;        ///< what to bring closer meanwhile,
  int64_t fetch_lines;      ///< so many cache lines (0, 1, 2 or 4) with each step
};

/// Calls run(const TileRun&) for each block of groups in order, and in it for each tile of rows.
template <class Run>
HEADRACE_SIMD_INLINE void walk_panel(const PanelTask& task, const PanelSizes& sizes,
                                     const Run& run) {
  const int64_t tiles = (task.rows + task.tile_rows - 1) / task.tile_rows;
  const int64_t most = (tiles < 4 ? kSmallBlockBytes : kBlockBytes) / sizes.group_bytes;
  const int64_t block = tiles == 1 ? task.k_groups : most < 1 ? 1 : most;
  // From three tiles on, the first ones share in fetching the next block (or the next panel's
  // first). One or two leave a sequential stream, which the hardware reads ahead faster than
  // prefetches do: those wait for the first-level cache's few outstanding misses.
  int64_t fetching_tiles = tiles < 3 ? 0 : sizes.step_lines;
  while (fetching_tiles > tiles) fetching_tiles /= 2;
  for (int64_t first = 0; first < task.k_groups; first += block) {
    const int64_t last = first + block < task.k_groups ? first + block : task.k_groups;
    const char* fetch = static_cast<const char*>(task.panel) + last * sizes.group_bytes;
    for (int64_t row = 0, tile = 0; row < task.rows; row += task.tile_rows, ++tile) {
      const int64_t left = task.rows - row;
      const int64_t fetch_lines = tile < fetching_tiles ? sizes.step_lines / fetching_tiles : 0;
      run({row, left < task.tile_rows ? left : task.tile_rows, first, last,
           static_cast<const char*>(task.activations) + row * sizes.row_bytes, fetch, fetch_lines});
      fetch += (last - first) * sizes.group_steps * fetch_lines * 64;
    }
  }
}

/// One step's fetching.
HEADRACE_SIMD_INLINE void fetch_ahead(const char*& fetch, int64_t lines) {
  if (lines == 0) return;
  prefetch(fetch);
  if (lines >= 2) prefetch(fetch + 64);
  if (lines == 4) {
    prefetch(fetch + 128);
    prefetch(fetch + 192);
  }
  fetch += lines * 64;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
