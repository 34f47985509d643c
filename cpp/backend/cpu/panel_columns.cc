#include "backend/cpu/panel_columns.h"

namespace headrace {

WeightColumn find_feature(const WeightSpec& spec, int64_t feature) {
  for (const WeightPart& part : spec.parts) {
    if (feature < part.n) return {&part, feature};
    feature -= part.n;
  }
  return {};
}

WeightColumn panel_column(const WeightSpec& spec, const PanelCut& cut, int64_t panel,
                          int32_t column) {
  const int64_t first = panel * cut.panel_outputs();
  if (!cut.gate_up) return find_feature(spec, first + column);
  const int32_t vector = column / cut.lanes;
  const int64_t output = first + vector / 2 * cut.lanes + column % cut.lanes;
  if (output >= cut.outputs()) return {};
  return find_feature(spec, output + (vector % 2) * cut.outputs());
}

}  // namespace headrace
