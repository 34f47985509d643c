#pragma once

#include <array>
#include <cstdint>

#include "backend/contract/rope.h"

namespace headrace {

/// Fills out [rotary_dim] for one token: cos of all pairs, then sin of all pairs, times the
/// attention factor. The angle is the float32 product position * inv_freq, as models were trained;
/// its cosine is exact to float32. `positions`: one for each axis. `rope_len` matters to scaling
/// by length only, see rope.h.
void rope_angles(const RopeSpec& spec, const std::array<int32_t, 3>& positions, int32_t rope_len,
                 float* out);

}  // namespace headrace
