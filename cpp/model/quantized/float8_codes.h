#pragma once

// FP8 weights of a checkpoint as they come, for backends that multiply FP8.

#include <memory>

#include "model/quantized/scaled_float8.h"
#include "model/quantized/stored_codes.h"

namespace headrace {

class Float8Codes final : public CheckpointCodes {
 public:
  /// Of the linear [n, k] those features from `first` on. REQUIRES: a format of FP8, of whose
  /// groups each lies within a block of scales.
  Float8Codes(std::unique_ptr<const ScaledFloat8> whole, const QuantFormat& format, int64_t k,
              int64_t first)
      : whole_(std::move(whole)), format_(format), k_(k), first_(first) {}

  const QuantFormat& format() const noexcept override { return format_; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  /// Throws TensorError(kCorruptFile) for a code that is NaN.
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override;
  const std::vector<std::string>& tensors() const noexcept override { return whole_->tensors(); }
  const std::string& scales() const noexcept override { return whole_->tensors().back(); }

 private:
  std::unique_ptr<const ScaledFloat8> whole_;
  QuantFormat format_;
  int64_t k_, first_;
  std::vector<int32_t> order_;  // none
};

}  // namespace headrace
