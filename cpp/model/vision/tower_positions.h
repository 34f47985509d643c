#pragma once

// What a tower adds to or turns its rows by, because of where their patches stand.

#include <cstdint>
#include <utility>
#include <vector>

#include "model/config/vision_config.h"
#include "model/vision/vision_tower.h"

namespace headrace {

/// Cosines and sines of the rope of towers: of a head's pairs the first half turns by the row, the
/// second by the column, each with frequencies 10000^(-2j / (d / 2)).
class AxialRope {
 public:
  /// Of coordinates below `side`. REQUIRES: head_dim a multiple of 4.
  AxialRope(int32_t head_dim, int32_t side);

  /// out [d]: d / 2 cosines, then as many sines.
  void fill(std::pair<int32_t, int32_t> place, float* out) const;

 private:
  int32_t quarter_;
  std::vector<float> cosines_, sines_;  // [side, quarter]
};

/// The absolute position at a place of a grid, from a table [side^2, width] of those of a square:
/// bilinear, with the grid's corners on the table's. float32.
class PositionTable {
 public:
  /// `table`: host memory, which outlives this. Null: there are no positions.
  PositionTable(const float* table, int32_t side, int32_t width)
      : table_(table), side_(side), width_(width) {}

  bool empty() const noexcept { return table_ == nullptr; }
  /// out [width]. REQUIRES: a place in the grid.
  void fill(const PatchGrid& grid, std::pair<int32_t, int32_t> place, float* out) const;

 private:
  const float* table_;
  int32_t side_, width_;
};

}  // namespace headrace
