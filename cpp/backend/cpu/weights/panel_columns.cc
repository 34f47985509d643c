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

}  // namespace headrace
