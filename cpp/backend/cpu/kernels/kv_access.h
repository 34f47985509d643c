#pragma once

// How each cache dtype's keys and values are addressed and widened. See kv_cache.h.

#include "backend/cpu/kernels_attention.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// Place of a number in [count / 2][stride][2]: `index` counts the pairs' members.
constexpr int64_t pair_place(int index, int lane, int stride) {
  return (static_cast<int64_t>(index / 2) * stride + lane) * 2 + index % 2;
}

/// Keys [head_dim][16] and values [16][head_dim] of 16 tokens.
template <class T>
struct PlainLayout {
  using Element = T;
  static int64_t key_place(int dim, int lane) {
    return static_cast<int64_t>(dim) * kKvLanes + lane;
  }
  static int64_t value_place(int lane, int dim, int head_dim) {
    return static_cast<int64_t>(lane) * head_dim + dim;
  }
};

/// Keys [head_dim / 2][16][2] and values [8][head_dim][2] of 16 tokens.
template <class T>
struct PairLayout {
  using Element = T;
  static int64_t key_place(int dim, int lane) { return pair_place(dim, lane, kKvLanes); }
  static int64_t value_place(int lane, int dim, int head_dim) {
    return pair_place(lane, dim, head_dim);
  }
};

// Latent rows are kept as keys. Values as they would lie, of 16 tokens.

/// [head_dim][16] to [16][head_dim].
void turn_plain(const float* keys, int head_dim, float* values) {
  for (int dim = 0; dim < head_dim; dim += kLanes) {
    for (int lane = 0; lane < kKvLanes; lane += kLanes) {
      F32 rows[kLanes];
      for (int i = 0; i < kLanes; ++i) rows[i] = load(keys + (dim + i) * kKvLanes + lane);
      transpose(rows);
      for (int i = 0; i < kLanes; ++i) store(values + (lane + i) * head_dim + dim, rows[i]);
    }
  }
}
void turn_plain(const uint16_t* keys, int head_dim, uint16_t* values) {
  for (int dim = 0; dim < head_dim; ++dim) {
    for (int lane = 0; lane < kKvLanes; ++lane) {
      values[lane * head_dim + dim] = keys[dim * kKvLanes + lane];
    }
  }
}

/// [head_dim / 2][16][2] to [8][head_dim][2]: four numbers, two dimensions of two tokens, move
/// together, and the two in the middle change places.
void turn_pairs(const uint16_t* keys, int head_dim, uint16_t* values) {
  constexpr uint64_t kOuter = 0xffff00000000ffffu, kLow = 0xffff0000u;
  for (int pair = 0; pair < head_dim / 2; ++pair) {
    uint64_t fours[kKvLanes / 2];
    __builtin_memcpy(fours, keys + pair * kKvLanes * 2, sizeof fours);
    for (uint64_t& four : fours) {
      four = (four & kOuter) | (four >> 16 & kLow) | (four & kLow) << 16;
    }
    for (int tokens = 0; tokens < kKvLanes / 2; ++tokens) {
      __builtin_memcpy(values + (tokens * head_dim + 2 * pair) * 2, fours + tokens,
                       sizeof fours[0]);
    }
  }
}

// Formats that are widened to float32: keys(group, dim, lane) gives dimension `dim` of the tokens
// from `lane` on, values(group, lane, dim, head_dim) dimensions from `dim` on of token `lane`.

struct KvF32 : PlainLayout<float> {
  static F32 keys(const float* group, int dim, int lane) {
    return load(group + key_place(dim, lane));
  }
  static F32 values(const float* group, int lane, int dim, int head_dim) {
    return load(group + value_place(lane, dim, head_dim));
  }
  static void narrow(float* p, F32 v) { store(p, v); }
  static void turn(const float* keys, int head_dim, float* values) {
    turn_plain(keys, head_dim, values);
  }
};

struct KvF16 : PlainLayout<uint16_t> {
  static F32 keys(const uint16_t* group, int dim, int lane) {
    return load_f16(group + key_place(dim, lane));
  }
  static F32 values(const uint16_t* group, int lane, int dim, int head_dim) {
    return load_f16(group + value_place(lane, dim, head_dim));
  }
  static void narrow(uint16_t* p, F32 v) { store_f16(p, v); }
  static void turn(const uint16_t* keys, int head_dim, uint16_t* values) {
    turn_plain(keys, head_dim, values);
  }
};

/// Times 1/256, and without the tokens' scales.
struct KvF8 : PlainLayout<uint8_t> {
  static F32 keys(const uint8_t* group, int dim, int lane) {
    return load_f8_part(group + key_place(dim, lane));
  }
  static F32 values(const uint8_t* group, int lane, int dim, int head_dim) {
    return load_f8_part(group + value_place(lane, dim, head_dim));
  }
};

struct KvBF16 : PairLayout<uint16_t> {
  static F32 keys(const uint16_t* group, int dim, int lane) {
    return load_half(group + key_place(dim & ~1, lane), dim % 2);
  }
  static F32 values(const uint16_t* group, int lane, int dim, int head_dim) {
    return load_half(group + value_place(lane & ~1, dim, head_dim), lane % 2);
  }
  static void narrow(uint16_t* p, F32 v) { store_bf16(p, v); }
  static void turn(const uint16_t* keys, int head_dim, uint16_t* values) {
    turn_pairs(keys, head_dim, values);
  }

 private:
  HEADRACE_SIMD_INLINE static F32 load_half(const uint16_t* p, int odd) {
    return odd != 0 ? load_bf16_odd(p) : load_bf16_even(p);
  }
};

/// Keys of 16 tokens of a block: `group` counts from the block's start. Their values lie
/// cache.value_offset bytes behind.
HEADRACE_SIMD_INLINE uint8_t* key_group(const KvLayerView& cache, int64_t block, int kv_head,
                                        int group) {
  return cache.data + block * cache.block_stride + kv_head * cache.head_stride +
         group * cache.group_stride;
}

/// Scales of those keys. Those of the values lie cache.value_scale_offset bytes behind.
HEADRACE_SIMD_INLINE uint8_t* key_scales(const KvLayerView& cache, int64_t block, int kv_head,
                                         int group) {
  return cache.data + block * cache.block_stride + cache.scale_offset +
         (static_cast<int64_t>(kv_head) * cache.block_size + group * kKvLanes) * kScaleBytes;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
