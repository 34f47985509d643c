#pragma once

#include <cstdint>

namespace headrace {

/// A state slot (cache_layout.h) that reads as zeros: what a sequence begins with.
inline constexpr int32_t kZeroState = -1;

/// The states behind row `row` of a slice, counted from 0, are stored in `slot`, too.
struct StateSave {
  int32_t row = 0;
  int32_t slot = 0;

  bool operator==(const StateSave&) const = default;
};

}  // namespace headrace
