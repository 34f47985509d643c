#pragma once

// Keys and values of a model's layers, in blocks.

#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

struct KvCacheSpec {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;     ///< multiple of 16, 16..256
  int32_t block_size = 64;  ///< tokens per block: a multiple of 16
  /// kF32, kBF16 or kF16; kI8, kF8E4M3 or kU4 with a scale for each token and head.
  DType dtype = DType::kF32;
};

/// Keys and values of all layers, in blocks; layout is the backend's. Must be destroyed before
/// its backend.
class KvCache {
 public:
  virtual ~KvCache() = default;
  const KvCacheSpec& spec() const noexcept { return spec_; }
  int32_t num_blocks() const noexcept { return num_blocks_; }

 protected:
  KvCache(const KvCacheSpec& spec, int32_t num_blocks) : spec_(spec), num_blocks_(num_blocks) {}

 private:
  KvCacheSpec spec_;
  int32_t num_blocks_;
};

}  // namespace headrace
