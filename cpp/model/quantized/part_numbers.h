#pragma once

// Parts of a stored module, as numbers.

#include <cstdint>
#include <memory>
#include <utility>

#include "model/quantized/stored_numbers.h"

namespace headrace {

/// Features of a module from one on, `step` apart.
class NumbersFrom final : public StoredNumbers {
 public:
  NumbersFrom(std::shared_ptr<const StoredNumbers> whole, int64_t first, int64_t step)
      : whole_(std::move(whole)), first_(first), step_(step) {
    tensors_ = whole_->tensors();
  }

  DType dtype() const noexcept override { return whole_->dtype(); }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override {
    whole_->read(first_ + feature * step_, first, count, out);
  }

 private:
  std::shared_ptr<const StoredNumbers> whole_;
  int64_t first_, step_;
};

/// Features of a module from one on as inputs, and its inputs as features.
class NumbersAcross final : public StoredNumbers {
 public:
  NumbersAcross(std::shared_ptr<const StoredNumbers> whole, int64_t first)
      : whole_(std::move(whole)), first_(first) {
    tensors_ = whole_->tensors();
  }

  DType dtype() const noexcept override { return whole_->dtype(); }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count; ++i) whole_->read(first_ + first + i, feature, 1, out + i);
  }

 private:
  std::shared_ptr<const StoredNumbers> whole_;
  int64_t first_;
};

}  // namespace headrace
