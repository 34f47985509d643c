#pragma once

#include <cstdint>
#include <vector>

#include "device_data.h"

namespace headrace::cuda {

/// Different experts for each row, in ascending order.
inline std::vector<int32_t> random_ids(Random& random, int64_t rows, int64_t top_k,
                                       int64_t experts) {
  std::vector<int32_t> out;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t left = top_k;
    for (int64_t e = 0; e < experts; ++e) {
      if (random.integer(1, experts - e) > left) continue;
      out.push_back(static_cast<int32_t>(e));
      --left;
    }
  }
  return out;
}

}  // namespace headrace::cuda
