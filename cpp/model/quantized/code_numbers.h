#pragma once

// Weights that a checkpoint stores as codes, for matrices that no backend keeps as codes.

#include <cstdint>
#include <vector>

#include "model/quantized/stored_codes.h"
#include "model/quantized/stored_numbers.h"

namespace headrace {

/// w[n][k] = (code[n][k] - zero) * scale, in float32.
class CodeNumbers final : public StoredNumbers {
 public:
  /// The memory that the layer points to must outlive it. Throws Error(kCorruptFile): a scale that
  /// isn't finite.
  explicit CodeNumbers(StoredLayer layer);

  DType dtype() const noexcept override { return layer_.bits == 4 ? DType::kU4 : DType::kI8; }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override;

 private:
  StoredLayer layer_;
  std::vector<int32_t> groups_;  ///< of each input, where they don't lie in order
};

}  // namespace headrace
