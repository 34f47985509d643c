#pragma once

// How a layer's keys and values lie in device memory: two arrays, each
// [num_blocks][num_kv_heads][block_size][head_dim] in the cache's dtype.

#include <cstdint>

namespace headrace::cuda {

struct KvLayout {
  int32_t num_kv_heads = 0;
  int32_t block_size = 0;
  int32_t head_dim = 0;

  /// Elements of one block of one of the two arrays.
  constexpr int64_t block_elements() const { return int64_t{num_kv_heads} * block_size * head_dim; }
  /// Of element 0 of the head of a token. `slot`: block * block_size + place in the block.
  constexpr int64_t offset(int64_t slot, int32_t kv_head) const {
    const int64_t block = slot / block_size;
    return ((block * num_kv_heads + kv_head) * block_size + slot % block_size) * head_dim;
  }
};

}  // namespace headrace::cuda
