#include "backend/cpu/weights/panel_columns.h"

namespace headrace {

WeightColumn panel_column(std::span<const WeightPart> parts, const PanelCut& cut, int64_t panel,
                          int32_t column) {
  const int64_t first = panel * cut.panel_outputs();
  if (!cut.gate_up) return find_feature(parts, first + column);
  const int32_t vector = column / cut.lanes;
  const int64_t output = first + vector / 2 * cut.lanes + column % cut.lanes;
  if (output >= cut.outputs()) return {};
  return find_feature(parts, output + (vector % 2) * cut.outputs());
}

void CodeColumns::choose(std::span<const WeightPart> parts, int64_t panel) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    columns_[c] = panel_column(parts, cut_, panel, static_cast<int32_t>(c));
  }
}

size_t CodeColumns::read_run(size_t c, int64_t group) {
  const WeightColumn start = columns_[c];
  if (start.part == nullptr) {
    groups_[c] = {};
    return 1;
  }
  size_t length = 1;
  while (c + length < columns_.size() && columns_[c + length].part == start.part &&
         columns_[c + length].feature == start.feature + static_cast<int64_t>(length)) {
    ++length;
  }
  start.part->codes->read(start.feature, static_cast<int64_t>(length), group, &groups_[c]);
  return length;
}

}  // namespace headrace
