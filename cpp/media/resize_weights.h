#pragma once

#include <cstdint>
#include <vector>

#include "headrace/media.h"

namespace headrace {

/// Bits behind the point of a weight.
inline constexpr int kWeightBits = 22;

/// What each output position of one axis reads: input positions [first[o], first[o] + count[o])
/// with weights weight[o * stride ...]; the rest of the stride is zero.
struct AxisWeights {
  int64_t stride = 0;  ///< weights per output position, a multiple of 4
  std::vector<int32_t> first, count;
  std::vector<int32_t> weight;  ///< fixed point, kWeightBits; those of a position sum to about 1
};

/// REQUIRES: 1 <= in, out <= kMaxImageSide. Throws Error kInvalidArgument for an unknown filter.
AxisWeights axis_weights(int64_t in, int64_t out, ResizeFilter filter);

}  // namespace headrace
