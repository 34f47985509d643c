#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/media_input.h"

namespace headrace::internal {

/// Which positions RoPE goes by on its three axes (time, height, width) for each position of a
/// request whose prompt has media, generated tokens too. An item's positions begin where the text
/// before it ends; what follows begins one above its largest one.
class RopeLayout {
 public:
  /// Every position is its own on all axes.
  RopeLayout() = default;
  /// REQUIRES: checked runs (check_media.h).
  explicit RopeLayout(std::span<const MediaInput> media);

  bool is_plain() const noexcept { return pieces_.empty(); }
  std::array<int32_t, 3> at(int32_t position) const;

 private:
  /// From a position on: a run with a grid, or (t == 0) text.
  struct Piece {
    int32_t position = 0;
    int32_t start = 0;  ///< on all axes
    MediaGrid grid{};
    std::vector<int32_t> steps{};
  };

  std::vector<Piece> pieces_;  ///< by position; text before the first counts from 0
};

/// What comes behind a run whose positions begin at `start`. REQUIRES: a checked run with a grid.
int64_t rope_behind(int64_t start, const MediaRun& run);

}  // namespace headrace::internal
