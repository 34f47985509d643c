#pragma once

// Low-rank adapters (LoRA) of one linear: as files store them, and as a backend packed them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/packed_weight.h"
#include "tensor/dtype.h"

namespace headrace {

/// Ranks of an adapter's parts are rounded up to a multiple of this in lora()'s scratch.
inline constexpr int64_t kLoraRankUnit = 16;

/// What a low-rank adapter (LoRA) adds to columns [column, column + b.n) of a linear()'s output:
/// scale * B (A x).
struct LoraPart {
  WeightPart a;  ///< n = rank, k = input features
  WeightPart b;  ///< n = output features, k = rank
  int64_t column = 0;
  float scale = 1.0f;
};

struct LoraSpec {
  std::vector<LoraPart> parts;  ///< columns don't overlap
  int64_t n = 0;                ///< output features of the linear
  int64_t k = 0;                ///< its input features
  DType storage = DType::kF32;  ///< kF32, kBF16 or kF16: how the backend keeps A and B
};

/// What one adapter adds to one linear, in a backend's own layout. Immutable. Made by
/// Backend::pack_lora; must be destroyed before its backend.
class PackedLora {
 public:
  virtual ~PackedLora() = default;
  int64_t n() const noexcept { return n_; }
  int64_t k() const noexcept { return k_; }
  /// Columns it needs of lora()'s scratch: the parts' ranks, each rounded up to kLoraRankUnit.
  int64_t scratch_columns() const noexcept { return scratch_columns_; }
  /// Bytes of memory held; also the bytes a decode step must read.
  size_t bytes() const noexcept { return bytes_; }

 protected:
  PackedLora(int64_t n, int64_t k, int64_t scratch_columns, size_t bytes)
      : n_(n), k_(k), scratch_columns_(scratch_columns), bytes_(bytes) {}

 private:
  int64_t n_, k_, scratch_columns_;
  size_t bytes_;
};

/// Rows of a step that use one adapter.
struct LoraGroup {
  const PackedLora* lora = nullptr;
  std::span<const int32_t> rows;  ///< distinct, in no other group
};

}  // namespace headrace
