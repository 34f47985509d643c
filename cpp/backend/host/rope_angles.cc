#include "backend/host/rope_angles.h"

#include <cmath>

namespace headrace {

void rope_angles(const RopeSpec& spec, const std::array<int32_t, 3>& positions, int32_t rope_len,
                 float* out) {
  const int32_t pairs = spec.rotary_dim / 2;
  const bool is_long = spec.dynamic_original_max > 0 && rope_len > spec.dynamic_original_max;
  const bool dynamic = is_long && spec.long_inv_freq.empty();
  const std::vector<float>& stored = is_long && !dynamic ? spec.long_inv_freq : spec.inv_freq;
  double base = 0.0;
  if (dynamic) {
    const double dim = spec.rotary_dim;
    const double stretch =
        spec.dynamic_factor * rope_len / spec.dynamic_original_max - (spec.dynamic_factor - 1.0);
    base = spec.dynamic_base * std::pow(stretch, dim / (dim - 2.0));
  }
  for (int32_t i = 0; i < pairs; ++i) {
    const float frequency = dynamic ? static_cast<float>(std::pow(base, -2.0 * i / spec.rotary_dim))
                                    : stored[static_cast<size_t>(i)];
    const size_t axis = spec.axes.empty() ? 0 : spec.axes[static_cast<size_t>(i)];
    const double angle = static_cast<float>(positions[axis]) * frequency;
    out[i] = static_cast<float>(std::cos(angle)) * spec.attention_factor;
    out[pairs + i] = static_cast<float>(std::sin(angle)) * spec.attention_factor;
  }
}

}  // namespace headrace
