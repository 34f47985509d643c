#include "model/vision/patch_order.h"

#include <algorithm>

#include "base/checked_math.h"

namespace headrace {

namespace {

/// A grid over time in squares.
struct Squares {
  int32_t h = 0, w = 0;
  int64_t count() const { return int64_t{h} * w; }
};

/// The squares of one grid, window by window, and how many each window has.
struct WindowOrder {
  std::vector<int32_t> squares;
  std::vector<int32_t> sizes;
};

WindowOrder by_window(const Squares& grid, int32_t side) {
  WindowOrder out;
  for (int32_t top = 0; top < grid.h; top += side) {
    const int32_t bottom = std::min(top + side, grid.h);
    for (int32_t left = 0; left < grid.w; left += side) {
      const int32_t right = std::min(left + side, grid.w);
      for (int32_t y = top; y < bottom; ++y) {
        for (int32_t x = left; x < right; ++x) out.squares.push_back(y * grid.w + x);
      }
      out.sizes.push_back((bottom - top) * (right - left));
    }
  }
  return out;
}

/// The patch of a grid that comes row by row, by its square and its place in it.
int32_t by_row(const Squares& grid, int32_t merge, int64_t square, int64_t inside) {
  const auto y = static_cast<int32_t>(square / grid.w * merge + inside / merge);
  const auto x = static_cast<int32_t>(square % grid.w * merge + inside % merge);
  return y * grid.w * merge + x;
}

}  // namespace

PatchOrder order_patches(const VisionConfig& config, const PatchGrid& grid) {
  const int32_t merge = config.merge_size, unit = merge * merge;
  const Squares squares{grid.h / merge, grid.w / merge};
  const auto count = static_cast<int32_t>(squares.count());
  const auto patches = static_cast<int32_t>(int64_t{count} * unit);
  PatchOrder out;
  WindowOrder windows;
  if (config.window > 0) windows = by_window(squares, config.window);
  for (int32_t t = 0; t < grid.t; ++t) {
    int32_t end = t * patches;
    out.grid_ends.push_back(end + patches);
    for (const int32_t size : windows.sizes) out.window_ends.push_back(end += size * unit);
    if (windows.squares.empty() && !config.patches_by_row) continue;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t square = windows.squares.empty() ? i : windows.squares[static_cast<size_t>(i)];
      for (int32_t inside = 0; inside < unit; ++inside) {
        out.inputs.push_back(t * patches + (config.patches_by_row
                                                ? by_row(squares, merge, square, inside)
                                                : square * unit + inside));
      }
      if (!windows.squares.empty()) out.outputs.push_back(t * count + square);
    }
  }
  return out;
}

std::pair<int32_t, int32_t> place_of(const VisionConfig& config, const PatchGrid& grid,
                                     int64_t input) {
  const int64_t inside_grid = input % (int64_t{grid.h} * grid.w);
  const int32_t merge = config.patches_by_row ? 1 : config.merge_size, unit = merge * merge;
  const int64_t square = inside_grid / unit, inside = inside_grid % unit;
  const int32_t columns = grid.w / merge;
  return {static_cast<int32_t>(square / columns * merge + inside / merge),
          static_cast<int32_t>(square % columns * merge + inside % merge)};
}

}  // namespace headrace
