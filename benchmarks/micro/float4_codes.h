#pragma once

// MXFP4 weights of any size that take no memory.

#include <cstdint>
#include <vector>

#include "backend/contract/packed_weight.h"

namespace headrace::bench {

/// Codes that change from feature to feature and from group to group.
class Float4Codes final : public WeightCodes {
 public:
  const QuantFormat& format() const noexcept override { return kFloat4Format; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    for (int64_t i = 0; i < count; ++i) {
      auto state = static_cast<uint32_t>((first + i) * 977 + group);
      out[i].scale = 125;
      for (int32_t j = 0; j < kFloat4Format.group_size; ++j) {
        state = state * 1664525u + 1013904223u;
        out[i].codes[j] = static_cast<uint8_t>(state >> 28);
      }
    }
  }
  WeightPart part(int64_t n, int64_t k) const {
    WeightPart out;
    out.n = n;
    out.k = k;
    out.codes = this;
    return out;
  }

 private:
  std::vector<int32_t> order_;  // none
};

}  // namespace headrace::bench
