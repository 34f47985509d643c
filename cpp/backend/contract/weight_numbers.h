#pragma once

// Weights that a checkpoint keeps as small floats with scales beside them: each is a number once
// its scale is applied, and is packed like any other.

#include <cstdint>

namespace headrace {

/// The numbers of the features of a weight part, whatever way they are stored. Any thread may read.
class WeightNumbers {
 public:
  virtual ~WeightNumbers() = default;

  /// Inputs [first, first + count) of a feature as float32; NaN where none is stored.
  virtual void read(int64_t feature, int64_t first, int64_t count, float* out) const = 0;
};

}  // namespace headrace
