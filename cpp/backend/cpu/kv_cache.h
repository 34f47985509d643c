#pragma once

// The CPU's KV cache: one buffer, [layer][block][keys, values][kv_head][block_size * head_dim].
//
// Keys of 16 consecutive tokens are the lanes of a vector:
//   float32, float16: [block_size / 16][head_dim][16]
//   bfloat16:         [block_size / 16][head_dim / 2][16][2], pairs of dimensions side by side
// so that a score is one lane's sum and no kernel ever transposes. Values are
// [block_size][head_dim].
//
// Memory is touched when a token is first written. What a block holds beyond the tokens that its
// sequence has written (zeros, or another sequence's numbers) is read by no result: kernels mask
// by position, never by multiplying with zero.

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels_attention.h"

namespace headrace {

class CpuKvCache final : public KvCache {
 public:
  /// `storage` holds num_blocks * block_bytes(spec) bytes, zero or finite numbers or whatever.
  CpuKvCache(const KvCacheSpec& spec, int32_t num_blocks, Backend::Buffer storage);

  /// Bytes of one block over all layers. REQUIRES: spec passes check_kv_spec().
  static size_t block_bytes(const KvCacheSpec& spec);

  KvLayerView layer(int32_t layer) const;
  /// The kernels for this cache's dtype.
  const KvFormat& format(const AttentionKernels& kernels) const;

  /// Widens the key and the value [head_dim] of one token, for tests.
  void read(int32_t layer, int32_t block, int32_t kv_head, int32_t slot, float* key,
            float* value) const;

 private:
  Backend::Buffer storage_;
};

}  // namespace headrace
