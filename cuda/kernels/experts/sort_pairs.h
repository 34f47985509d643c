#pragma once

#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/experts/expert_tile.h"

namespace headrace::cuda {

struct SortPairsArgs {
  const int32_t* ids = nullptr;  ///< [rows, top_k]: different ones in each row
  int64_t ids_stride = 0;
  int64_t rows = 0, top_k = 0;
  int32_t experts = 0;
  int32_t first_expert = 0;  ///< whose id is this: ids are less this number
  /// Rows from *used_rows on are padding: in no pair. Null: there are none. The first of these rows
  /// counts as row `first_row`.
  const int32_t* used_rows = nullptr;
  int64_t first_row = 0;
  int32_t tile_rows = 0;
  int32_t* pair_rows = nullptr;  ///< [rows * top_k]: of each pair; those behind the last: undefined
  int32_t* places = nullptr;     ///< [rows, top_k]: each pair's place, -1: it is none
  int32_t* num_pairs = nullptr;  ///< how many there are; null: nobody asks
  ExpertTile* tiles =
      nullptr;  ///< [most_expert_tiles()], expert by expert, then those without rows
};

/// Sorts pairs of rows and experts by expert, then by row, and lists their tiles. An id that is no
/// expert's makes no pair.
void sort_pairs(const SortPairsArgs& args, Stream stream);

}  // namespace headrace::cuda
