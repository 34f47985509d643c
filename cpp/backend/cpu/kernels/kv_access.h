#pragma once

// How each cache dtype's keys and values are addressed and widened. See kv_cache.h.

#include "backend/cpu/kernels_attention.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// Keys [head_dim][16] per 16 tokens.
struct KvF32 {
  using Element = float;
  static F32 even_keys(const float* group, int pair, int lane) {
    return load(group + 2 * pair * kKvLanes + lane);
  }
  static F32 odd_keys(const float* group, int pair, int lane) {
    return load(group + (2 * pair + 1) * kKvLanes + lane);
  }
  static F32 widen(const float* p) { return load(p); }
  static void narrow(float* p, F32 v) { store(p, v); }
  static int key_index(int dim, int lane) { return dim * kKvLanes + lane; }
};

struct KvF16 {
  using Element = uint16_t;
  static F32 even_keys(const uint16_t* group, int pair, int lane) {
    return load_f16(group + 2 * pair * kKvLanes + lane);
  }
  static F32 odd_keys(const uint16_t* group, int pair, int lane) {
    return load_f16(group + (2 * pair + 1) * kKvLanes + lane);
  }
  static F32 widen(const uint16_t* p) { return load_f16(p); }
  static void narrow(uint16_t* p, F32 v) { store_f16(p, v); }
  static int key_index(int dim, int lane) { return dim * kKvLanes + lane; }
};

/// Keys [head_dim / 2][16][2] per 16 tokens: pairs of dimensions, as bf16 dot products want them.
struct KvBF16 {
  using Element = uint16_t;
  static F32 even_keys(const uint16_t* group, int pair, int lane) {
    return load_bf16_even(group + 2 * (pair * kKvLanes + lane));
  }
  static F32 odd_keys(const uint16_t* group, int pair, int lane) {
    return load_bf16_odd(group + 2 * (pair * kKvLanes + lane));
  }
  static F32 widen(const uint16_t* p) { return load_bf16(p); }
  static void narrow(uint16_t* p, F32 v) { store_bf16(p, v); }
  static int key_index(int dim, int lane) { return (dim / 2 * kKvLanes + lane) * 2 + dim % 2; }
};

/// Keys of 16 tokens of a block: `group` counts from the block's start.
template <class Kv>
HEADRACE_SIMD_INLINE typename Kv::Element* key_group(const KvLayerView& cache, int64_t block,
                                                     int kv_head, int group) {
  return static_cast<typename Kv::Element*>(cache.data) + block * cache.block_stride +
         kv_head * cache.head_stride + static_cast<int64_t>(group) * kKvLanes * cache.head_dim;
}

/// Values of those tokens, [16][head_dim].
template <class Kv>
HEADRACE_SIMD_INLINE typename Kv::Element* value_group(const KvLayerView& cache, int64_t block,
                                                       int kv_head, int group) {
  return key_group<Kv>(cache, block, kv_head, group) + cache.value_offset;
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
