#pragma once

// Weights that a checkpoint keeps as codes already, so that a backend takes them as they are.

#include <cstdint>
#include <vector>

#include "backend/contract/quant_format.h"

namespace headrace {

/// Codes, scales and zeros of the features of a weight part, whatever way they are stored. Any
/// thread may read.
class WeightCodes {
 public:
  virtual ~WeightCodes() = default;

  virtual const QuantFormat& format() const noexcept = 0;
  /// Group `group` (format().group_size inputs; behind the last input the zero) of features
  /// [first, first + count).
  virtual void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const = 0;
  /// [k] of a reordered format: which input each position of the groups stands for, a permutation.
  /// Empty for others. One for all parts of a matrix.
  virtual const std::vector<int32_t>& order() const noexcept = 0;
};

}  // namespace headrace
