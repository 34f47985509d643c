#pragma once

// Weights that a checkpoint stores as small floats or codes with scales, which are read as numbers.

#include <string>
#include <vector>

#include "backend/contract/weight_numbers.h"
#include "tensor/dtype.h"

namespace headrace {

/// One linear [n, k] of a checkpoint, which must outlive it.
class StoredNumbers : public WeightNumbers {
 public:
  /// Of the codes: kF8E4M3 or kF4E2M1, or kU4 or kI8 (code_numbers.h).
  virtual DType dtype() const noexcept = 0;
  /// The tensors it is made of, that of the codes first.
  const std::vector<std::string>& tensors() const noexcept { return tensors_; }

 protected:
  std::vector<std::string> tensors_;
};

}  // namespace headrace
