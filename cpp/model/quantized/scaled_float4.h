#pragma once

// Weights that a checkpoint stores as MXFP4: FP4 e2m1, of which 32 along k share a scale e8m0.

#include <cstdint>
#include <string>

#include "model/checkpoint/checkpoint.h"
#include "model/quantized/stored_numbers.h"

namespace headrace {

inline constexpr int64_t kMxBlock = 32;  ///< inputs that share a scale

/// w[n][k] = code[n][k] * 2^(scale[n][k / 32] - 127), exact in float32 unless it is beyond it. Two
/// codes share a byte, that of the lower k in the lower bits.
class ScaledFloat4 final : public StoredNumbers {
 public:
  /// The linear [n, k] named `stem` ("model.layers.0.mlp.down_proj"): stem.weight_packed, uint8
  /// [n, k / 2], and stem.weight_scale, uint8 [n, k / 32]. They point into the checkpoint. Throws
  /// Error naming the tensor: kNotFound, kCorruptFile (another shape, a scale that is NaN),
  /// kUnsupported (another type, a k that isn't a multiple of 32).
  ScaledFloat4(const Checkpoint& checkpoint, const std::string& stem, int64_t n, int64_t k);

  DType dtype() const noexcept override { return DType::kF4E2M1; }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override;

 private:
  /// Of uint8 [rows, columns].
  const uint8_t* find_bytes(const Checkpoint& checkpoint, const std::string& name, int64_t rows,
                            int64_t columns);

  int64_t k_;
  const uint8_t* codes_ = nullptr;
  const uint8_t* scales_ = nullptr;
};

}  // namespace headrace
