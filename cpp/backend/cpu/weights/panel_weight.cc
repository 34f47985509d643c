#include "backend/cpu/weights/panel_weight.h"

namespace headrace {

std::optional<uint64_t> count_panel_bytes(const PanelWeight& weight) {
  const auto panels = checked_mul(static_cast<uint64_t>(weight.num_panels()),
                                  static_cast<uint64_t>(weight.panel_bytes()));
  if (!panels || weight.experts() == 1) return panels;
  constexpr uint64_t kAlignment = PanelWeight::kExpertAlignment;
  const auto room = checked_add(*panels, kAlignment - 1);
  if (!room) return room;
  return checked_mul(*room / kAlignment * kAlignment, static_cast<uint64_t>(weight.experts()));
}

}  // namespace headrace
