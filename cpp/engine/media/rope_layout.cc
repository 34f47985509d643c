#include "engine/media/rope_layout.h"

#include <algorithm>

namespace headrace::internal {

int64_t rope_behind(int64_t start, const MediaRun& run) {
  return start + std::max({run.steps.back() + 1, run.grid.h, run.grid.w});
}

RopeLayout::RopeLayout(std::span<const MediaInput> media) {
  Piece text;
  for (const MediaInput& item : media) {
    for (const MediaRun& run : item.runs) {
      if (run.grid.t == 0) continue;
      const int32_t start = text.start + (run.position - text.position);
      pieces_.push_back({run.position, start, run.grid, run.steps});
      text.position = run.position + run.count;
      text.start = static_cast<int32_t>(rope_behind(start, run));
      pieces_.push_back(text);
    }
  }
}

std::array<int32_t, 3> RopeLayout::at(int32_t position) const {
  const auto behind = std::ranges::upper_bound(pieces_, position, {}, &Piece::position);
  if (behind == pieces_.begin()) return {position, position, position};
  const Piece& piece = *(behind - 1);
  const int32_t index = position - piece.position;
  if (piece.grid.t == 0) {
    const int32_t same = piece.start + index;
    return {same, same, same};
  }
  const int32_t area = piece.grid.h * piece.grid.w, in_area = index % area;
  return {piece.start + piece.steps[static_cast<size_t>(index / area)],
          piece.start + in_area / piece.grid.w, piece.start + in_area % piece.grid.w};
}

}  // namespace headrace::internal
