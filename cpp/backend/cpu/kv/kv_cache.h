#pragma once

// The CPU's KV cache: one buffer, [part][block][layer of the block's group]. A part holds
// consecutive KV heads of each layer; there is one, or, where all layers' heads can be shared out
// like threads, one near each NUMA node, which reads it. Of a layer a block of a part has
//
//   for each KV head keys, then values; scales of keys [kv_head][block_size], of values alike
//
// so that who attends with all KV heads of a part reads this from its start to its end.
//
// Tokens go in groups of 16, whose keys are the lanes of a vector, so that a score is one lane's
// sum and no kernel ever transposes. Of a group:
//
//            keys                      values
//   float32  [head_dim][16]            [16][head_dim]
//   float16  [head_dim][16]            [16][head_dim]
//   bfloat16 [head_dim / 2][16][2]     [8][head_dim][2]
//   int8     [head_dim / 2][16][2]     [8][head_dim][2]
//   float8   [head_dim][16]            [16][head_dim]
//   uint4    [head_dim / 4][16][2]     [8][head_dim / 32, rounded up][16][2]
//
// The last index of [2] counts a pair of dimensions (keys) or of tokens (values): dot products take
// pairs. A byte of uint4 holds two dimensions of one token: of a key the pairs 2i (low nibble) and
// 2i + 1; of a value the dimensions 32i + j (low) and 32i + 16 + j.
//
// Quantized keys and values have 4 bytes of scales for each token and head, made of that token
// alone when it is written:
//   int8   x = scale * i, |i| <= 127, scale float32 = largest |x| / 127
//   float8 x = scale * i, i of float8_e4m3, scale float32 = largest |x| / 448
//   uint4  x = low + scale * i, i <= 15; scale and low bfloat16, next to each other
// A token with a number that is not finite has a scale of NaN.
//
// Memory is touched when a token is first written. What a block holds beyond the tokens that its
// sequence has written (zeros, or another sequence's numbers) is read by no result: kernels mask
// by position, never by multiplying with zero.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cpu/kernels_attention.h"
#include "backend/host/array_kv_cache.h"

namespace headrace {

class CpuKvCache final : public ArrayKvCache {
 public:
  /// By group, of each part in order; all heads together.
  using PartHeads = std::vector<std::vector<int32_t>>;

  /// `storage` holds num_blocks * block_bytes(layout) bytes, zero or finite numbers or whatever.
  /// `states`: as ArrayKvCache has them.
  CpuKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer storage,
             const PartHeads& heads, int32_t num_slots, Backend::Buffer states);

  /// Bytes of one block in all parts. REQUIRES: the layout passes check_cache_layout().
  static size_t block_bytes(const CacheLayout& layout);

  int32_t num_parts() const noexcept { return static_cast<int32_t>(parts_.size()); }
  /// Where a KV head is: the layer of its part, and its number there.
  struct HeadPlace {
    const KvLayerView* layer;
    int32_t head;
  };
  HeadPlace find_head(int32_t layer, int32_t kv_head) const;
  /// A part's memory.
  std::span<uint8_t> part(int32_t part) const;
  /// The kernels for this cache's dtype.
  const KvFormat& format(const AttentionKernels& kernels) const;

  /// Widens the key and the value [head_dim] of one token, for tests.
  void read(int32_t layer, int32_t block, int32_t kv_head, int32_t slot, float* key,
            float* value) const;

 private:
  struct Layer {
    KvLayerView view;
    int32_t first_head, end_head;
  };
  struct Part {
    uint8_t* data;
    size_t block_bytes;
    std::vector<Layer> layers;
  };

  Backend::Buffer storage_;
  std::vector<Part> parts_;
};

}  // namespace headrace
