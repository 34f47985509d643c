#pragma once

// What the copy engine of sm_90 copies from: a parameter of kernels.

#include "cuda/kernels/matrix.h"

#if defined(HEADRACE_CUDA_EMULATION)
#include "cuda_emulation.h"
#else
#include <cuda.h>
#endif

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)
using TensorMap = emulation::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

inline constexpr int kBoxColumns = 64;  ///< 128 bytes, which the swizzle takes

/// Boxes of kBoxColumns x `box_rows` (up to 256) of a 16-bit matrix, as copy_box() lays them into
/// shared memory: rows of 128 bytes, swizzled in groups of 8; zeros beyond the edges.
/// REQUIRES: data and rows aligned to 16 bytes, at least one row.
TensorMap make_tensor_map(const ConstMatrix& matrix, DType dtype, int box_rows);

/// Bytes in tiles of 16 rows, `tile_bytes` apart; a tile is `units` times 16 rows of 128 bytes, and
/// what copy_unit() doesn't read.
struct TiledBytes {
  const void* data = nullptr;
  int64_t tiles = 0, tile_bytes = 0, units = 0;
};
inline constexpr int kMapTileRows = 16, kMapUnitBytes = 128;
/// Boxes of `box_tiles` tiles (up to 16) x a unit. REQUIRES: data and tile_bytes aligned to 16.
TensorMap make_tile_map(const TiledBytes& bytes, int box_tiles);

/// Bytes that each of some tiles, `tile_bytes` apart, begins with.
struct RunBytes {
  const void* data = nullptr;
  int64_t tiles = 0, tile_bytes = 0, bytes = 0;
};
/// Boxes of `box_bytes` (up to 1024) x `box_tiles` tiles, as copy_run() lays them into shared
/// memory, tile behind tile; zeros beyond the edges. REQUIRES: data and all bytes aligned to 16.
TensorMap make_run_map(const RunBytes& run, int box_bytes, int box_tiles);

}  // namespace headrace::cuda
