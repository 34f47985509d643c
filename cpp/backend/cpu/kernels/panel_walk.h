#pragma once

// How a panel meets all rows of a call: which weights stay close while rows pass over them, and
// what is fetched meanwhile. For the linear kernels.

#include "backend/cpu/kernels/panel_epilogue.h"
#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

// Bytes of a panel that stay close while all tiles of rows pass over them; and how far ahead
// weights are fetched. Few tiles read them from the first-level cache. Many tiles take as long to
// load and store their sums for each block as for some of its KiB: with the registers of AVX-512
// the second-level cache is fast enough for larger ones.
constexpr int64_t kBlockBytes = 16 * 1024;
constexpr int64_t kManyTiles = 5;
constexpr int64_t kManyTilesBlockBytes = kLanes == 16 ? 128 * 1024 : kBlockBytes;

/// The sizes of a panel and of packed rows.
struct PanelSizes {
  int64_t group_bytes;  ///< of PanelTask::panel, for one of its k_groups
  int64_t group_steps;  ///< that a tile takes through a group: each may fetch
  int64_t step_lines;   ///< cache lines of weights in a step: a power of two, at most 4
  int64_t line_dots;    ///< vector multiplications that a row spends on a line
  int64_t row_bytes;    ///< of a packed row
};

/// Groups [first, last) of a panel for one tile of rows.
struct TileRun {
  int64_t row;  ///< the tile's first
  int64_t rows;
  int64_t first, last;
  const char* activations;  ///< of the tile
  const char* fetch;        ///< what to bring closer meanwhile:
  int64_t group_lines;      ///< so many cache lines with each group
  int64_t step_lines;       ///< and so many (0, 1, 2 or 4) with each step
  bool streams;             ///< nothing is fetched: weights come straight from memory
};

/// Calls run(const TileRun&) for each block of groups in order, and in it for each tile of rows;
/// after a tile's last block its sums become outputs.
template <class Run>
HEADRACE_SIMD_INLINE void walk_panel(const PanelTask& task, const PanelSizes& sizes,
                                     const Run& run) {
  const int64_t tiles = (task.rows + task.tile_rows - 1) / task.tile_rows;
  const bool many = tiles >= kManyTiles;
  const int64_t most = (many ? kManyTilesBlockBytes : kBlockBytes) / sizes.group_bytes;
  const int64_t ahead = most < 1 ? 1 : most;
  const int64_t block = tiles == 1 ? task.k_groups : ahead;
  // A few rows leave one sequential stream, which the hardware reads ahead by itself; prefetches
  // would only get in its way. Where arithmetic takes as long as memory, too little of the stream
  // is in sight: tiles share in fetching as many bytes as they use, always as far ahead, from the
  // next panel too, so that memory has no pause.
  const bool fetches = tiles > 1 || task.rows * sizes.line_dots > 4;
  const int64_t header_lines = sizes.group_bytes / 64 - sizes.group_steps * sizes.step_lines;
  for (int64_t first = 0; first < task.k_groups; first += block) {
    const int64_t last = first + block < task.k_groups ? first + block : task.k_groups;
    const char* fetch = static_cast<const char*>(task.panel) + (first + ahead) * sizes.group_bytes;
    int64_t lines_left = fetches ? sizes.step_lines : 0;
    for (int64_t row = 0, tile = 0; row < task.rows; row += task.tile_rows, ++tile) {
      const int64_t left = task.rows - row;
      const int64_t count = left < task.tile_rows ? left : task.tile_rows;
      const int64_t share = (lines_left + tiles - tile - 1) / (tiles - tile);
      const int64_t step_lines = share == 3 ? 2 : share;
      const int64_t group_lines = fetches && tile == 0 ? header_lines : 0;
      if (many && last == task.k_groups) fetch_outputs(task, row, count);
      run({row, count, first, last,
           static_cast<const char*>(task.activations) + row * sizes.row_bytes, fetch, group_lines,
           step_lines, !fetches});
      if (last == task.k_groups) finish_rows(task, row, count);
      lines_left -= step_lines;
      fetch += (last - first) * (group_lines + sizes.group_steps * step_lines) * 64;
    }
  }
}

/// Before a step that streams.
template <int64_t kLines>
HEADRACE_SIMD_INLINE void touch_lines(bool streams, const void* weights) {
  if (!streams) return;
#pragma GCC unroll 4
  for (int64_t i = 0; i < kLines; ++i) touch_line(static_cast<const char*>(weights) + i * 64);
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
