#pragma once

// How a tower works through the patches of an item.

#include <cstdint>
#include <utility>
#include <vector>

#include "model/config/vision_config.h"
#include "model/vision/vision_tower.h"

namespace headrace {

/// The rows of a tower: patches in another order than they come in, so that those of a square that
/// becomes one row, and those of an attention window, lie together.
struct PatchOrder {
  std::vector<int32_t> inputs;       ///< [N] which patch each row is; empty: patch i is row i
  std::vector<int32_t> outputs;      ///< [N / m] which output each square is; empty: in order
  std::vector<int32_t> grid_ends;    ///< where each grid over time ends
  std::vector<int32_t> window_ends;  ///< where each attention window ends; empty: no windows

  int64_t input(int64_t row) const {
    return inputs.empty() ? row : inputs[static_cast<size_t>(row)];
  }
};

/// REQUIRES: a grid that the tower takes.
PatchOrder order_patches(const VisionConfig& config, const PatchGrid& grid);

/// Where the patch that comes as number `input` stands in its grid over time: row and column.
std::pair<int32_t, int32_t> place_of(const VisionConfig& config, const PatchGrid& grid,
                                     int64_t input);

}  // namespace headrace
