#pragma once

// Weights that a checkpoint stores as FP8 e4m3 with a scale for the tensor, each feature or blocks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/config/stored_quantization.h"
#include "model/quantized/stored_numbers.h"

namespace headrace {

/// w[n][k] = code[n][k] * scale[n / block_n][k / block_k], in float32.
class ScaledFloat8 final : public StoredNumbers {
 public:
  /// The linear [n, k] named `stem` ("model.layers.0.mlp.down_proj"): stem.weight, which is
  /// kF8E4M3, and stem.weight_scale_inv or stem.weight_scale. They point into the checkpoint.
  /// Throws Error naming the tensor: kNotFound, kCorruptFile (a shape that can't be, a scale that
  /// is NaN or infinite), kUnsupported (scales that aren't float32, bfloat16 or float16).
  ScaledFloat8(const StoredQuantization& stored, const Checkpoint& checkpoint,
               const std::string& stem, int64_t n, int64_t k);

  DType dtype() const noexcept override { return DType::kF8E4M3; }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override;

  /// A feature's codes, [k], and the scale of one of them.
  const uint8_t* codes(int64_t feature) const noexcept { return codes_ + feature * k_; }
  float scale(int64_t feature, int64_t input) const noexcept {
    return scales_[static_cast<size_t>(feature / block_n_ * columns_ + input / block_k_)];
  }

 private:
  void read_scales(const StoredQuantization& stored, const CheckpointTensor& scales, int64_t n,
                   int64_t k);

  int64_t k_;
  const uint8_t* codes_ = nullptr;
  std::vector<float> scales_;                        // [ceil(n / block_n), columns]
  int64_t block_n_ = 1, block_k_ = 1, columns_ = 1;  // of scales
};

}  // namespace headrace
