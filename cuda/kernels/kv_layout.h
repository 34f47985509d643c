#pragma once

// How a layer's keys and values lie in device memory. A block has the keys of each of its layers,
// [num_kv_heads][block_size][head_dim] in the cache's dtype, and its values alike; so from a
// layer's keys in one block to those in the next it is a block's bytes, which are a whole number of
// rows of every layer.
//
// int8, float8_e4m3 and uint4 are codes with 4 bytes of scales for each token and head, made of
// that token's head alone when it is written. The scales of a layer's keys, then those of its
// values, lie in the block behind its codes, [num_kv_heads][block_size].
//   int8         x = step * (byte - 128), the byte from 1 to 255; step float32 = largest |x| / 127
//   float8_e4m3  x = step * code; step float32 = largest |x| / 448
//   uint4        x = low + step * code; step (lower half) and low bfloat16; dimension 2i is the low
//                nibble of byte i, 2i + 1 the high one; a row is filled up to whole 16 bytes
// Where a step would be 1e-30 or less it is 1, and the codes are those of 0. A token's head with a
// number that isn't finite has a step of NaN.

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace::cuda {

/// Whether a cache of this dtype has scales.
constexpr bool kv_has_scales(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU4 || dtype == DType::kF8E4M3;
}

/// Bytes of a token's head.
inline int64_t kv_row_bytes(DType dtype, int32_t head_dim) {
  if (dtype == DType::kU4) return (int64_t{head_dim} + 31) / 32 * 16;
  return head_dim * static_cast<int64_t>(dtype_size(dtype));
}

inline constexpr int64_t kKvScaleBytes = 4;

struct KvLayout {
  int32_t num_kv_heads = 0;
  int32_t block_size = 0;
  int32_t head_dim = 0;
  int32_t block_stride = 0;  ///< rows from a block to the next
  int32_t scale_stride = 0;  ///< scales from a block to the next

  /// Of keys (or values) alone, and of scales alone.
  static constexpr KvLayout dense(int32_t num_kv_heads, int32_t block_size, int32_t head_dim) {
    const int32_t rows = num_kv_heads * block_size;
    return {num_kv_heads, block_size, head_dim, rows, rows};
  }

  /// Tokens' heads of a layer in one block.
  constexpr int64_t block_rows() const { return int64_t{num_kv_heads} * block_size; }
  /// Among the block's rows of the layer.
  constexpr int64_t place(int64_t slot, int32_t kv_head) const {
    return int64_t{kv_head} * block_size + slot % block_size;
  }
  /// Which row, counted from the layer's first, a token's head is. `slot`: block * block_size +
  /// place in the block.
  constexpr int64_t row(int64_t slot, int32_t kv_head) const {
    return slot / block_size * block_stride + place(slot, kv_head);
  }
  /// Which of the scales.
  constexpr int64_t scale(int64_t slot, int32_t kv_head) const {
    return slot / block_size * scale_stride + place(slot, kv_head);
  }
  /// Of a row's element 0.
  constexpr int64_t offset(int64_t slot, int32_t kv_head) const {
    return row(slot, kv_head) * head_dim;
  }
};

}  // namespace headrace::cuda
