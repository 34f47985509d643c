#pragma once

// Weights that a checkpoint stores as MXFP4: FP4 e2m1, of which 32 along k share a scale e8m0.

#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/quantized/stored_numbers.h"

namespace headrace {

inline constexpr int64_t kMxBlock = 32;  ///< inputs that share a scale

/// What holds a linear's codes and scales, both uint8.
struct Float4Tensors {
  std::string codes, scales;
  std::vector<int64_t> codes_shape, scales_shape;
};

/// compressed-tensors' of the linear [n, k] named `stem` ("model.layers.0.mlp.down_proj"):
/// stem.weight_packed [n, k / 2] and stem.weight_scale [n, k / 32].
Float4Tensors packed_float4(const std::string& stem, int64_t n, int64_t k);
/// gpt-oss's of E experts' [n, k], one below the other: name_blocks [E, n, k / 32, 16] and
/// name_scales [E, n, k / 32].
Float4Tensors blocks_float4(const std::string& name, int64_t experts, int64_t n, int64_t k);

/// w[n][k] = code[n][k] * 2^(scale[n][k / 32] - 127), exact in float32 unless it is beyond it. Two
/// codes share a byte, that of the lower k in the lower bits.
class ScaledFloat4 final : public StoredNumbers {
 public:
  /// The linear [n, k] in those tensors, to which it points. Throws Error naming the tensor:
  /// kNotFound, kCorruptFile (another shape, a scale that is NaN), kUnsupported (another type, a k
  /// that isn't a multiple of 32).
  ScaledFloat4(const Checkpoint& checkpoint, const Float4Tensors& tensors, int64_t n, int64_t k);

  DType dtype() const noexcept override { return DType::kF4E2M1; }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override;

  /// As they are stored, of a feature's block: codes, two a byte, and their scale.
  const uint8_t* pairs(int64_t feature, int64_t block) const noexcept {
    return codes_ + feature * (k_ / 2) + block * (kMxBlock / 2);
  }
  uint8_t scale(int64_t feature, int64_t block) const noexcept {
    return scales_[feature * (k_ / kMxBlock) + block];
  }

 private:
  const uint8_t* find_bytes(const Checkpoint& checkpoint, const std::string& name,
                            const std::vector<int64_t>& shape);

  int64_t k_;
  const uint8_t* codes_ = nullptr;
  const uint8_t* scales_ = nullptr;
};

}  // namespace headrace
