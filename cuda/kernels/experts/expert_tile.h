#pragma once

// Pairs of a row and one of its experts, sorted by expert, and the tiles that they are multiplied
// in.

#include <cstdint>

namespace headrace::cuda {

/// Pairs [first, first + rows) of one expert. Without rows: there is no such tile.
struct ExpertTile {
  int32_t expert = 0;
  int32_t first = 0;
  int32_t rows = 0;
};

/// Tiles of `tile_rows` pairs that `rows` rows make at most, whatever they choose: of E experts
/// with pairs the tiles are sum(1 + (pairs of e - 1) / tile_rows) at most.
constexpr int64_t most_expert_tiles(int64_t rows, int64_t top_k, int64_t experts,
                                    int64_t tile_rows) {
  const int64_t pairs = rows * top_k, used = pairs < experts ? pairs : experts;
  return rows <= tile_rows ? used : used + (pairs - used) / tile_rows;
}

}  // namespace headrace::cuda
