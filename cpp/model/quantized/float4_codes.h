#pragma once

// MXFP4 weights of a checkpoint as they come, for backends that keep them (kFloat4Format).

#include <memory>

#include "model/quantized/scaled_float4.h"
#include "model/quantized/stored_codes.h"

namespace headrace {

class Float4Codes final : public CheckpointCodes {
 public:
  /// Features of the linear from `first` on, `step` apart.
  Float4Codes(std::shared_ptr<const ScaledFloat4> whole, int64_t first, int64_t step)
      : whole_(std::move(whole)), first_(first), step_(step) {}

  const QuantFormat& format() const noexcept override { return kFloat4Format; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override;
  const std::vector<std::string>& tensors() const noexcept override { return whole_->tensors(); }
  const std::string& scales() const noexcept override { return whole_->tensors().back(); }

 private:
  std::shared_ptr<const ScaledFloat4> whole_;
  int64_t first_, step_;
  std::vector<int32_t> order_;  // none
};

}  // namespace headrace
