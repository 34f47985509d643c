#pragma once

// What a model's layers keep of each sequence.
//
// Layers that keep the same are a group. A sequence has a block table for each group. A block holds
// what all layers of its group keep of block_size tokens: it has a part for each of them. Blocks of
// all groups are as large, so they come out of one pool and have one numbering: a group's share of
// it is what its sequences need. Rows of groups differ, so that a block has the room that the group
// with the most numbers takes, and others may use less of it.
//
// A layer may read what another one has written: it has the other's place.
//
// A layer may keep a state, too, or instead: numbers that each token overwrites, so that they
// aren't in blocks. A cache has slots for them: one slot has all layers' states of one sequence at
// one position.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace headrace {

/// Largest head that caches, and the ops on them, take.
inline constexpr int32_t kLargestHead = 512;

/// Largest row of PagedRows::latent.
inline constexpr int32_t kLargestLatent = 640;

/// A key and a value of each KV head for each token.
struct PagedRows {
  int32_t num_kv_heads = 0;
  int32_t key_dim = 0;  ///< multiple of 16, 16..kLargestHead
  int32_t value_dim = 0;
  /// kF32, kBF16 or kF16; kI8, kF8E4M3 or kU4 with a scale for each token and head.
  DType dtype = DType::kF32;
  /// A row at position p reads positions (p - window, p], and whole tiles of kCacheTile positions
  /// around them. What is behind them is never read again. 0: all is.
  int32_t window = 0;
  /// One row is key and value of a token (latent attention). One head, key_dim == value_dim up to
  /// kLargestLatent, in kF32, kBF16 or kF16.
  bool latent = false;

  bool operator==(const PagedRows&) const = default;
  /// Of a token.
  int64_t numbers() const noexcept {
    return int64_t{num_kv_heads} * (latent ? key_dim : int64_t{key_dim} + value_dim);
  }
};

/// Keys and values of heads of one size.
inline PagedRows kv_rows(int32_t num_kv_heads, int32_t head_dim, DType dtype) {
  return {num_kv_heads, head_dim, head_dim, dtype};
}

/// Rows of latent attention.
inline PagedRows latent_rows(int32_t dim, DType dtype) {
  PagedRows out{1, dim, dim, dtype};
  out.latent = true;
  return out;
}

/// Ops may look up the blocks of tiles of so many positions, anchored at 0, that hold a position
/// which a row reads.
inline constexpr int32_t kCacheTile = 64;

/// What a layer with a state keeps of a sequence: as many float32 numbers, however long it is. One
/// sequence's states of all layers are a slot.
struct StateRows {
  /// The last inputs of a causal convolution over time: `window` rows of `channels`.
  int32_t channels = 0;  ///< 0: none
  int32_t window = 0;    ///< of a kernel of n rows the n - 1 before the next one
  /// A matrix [key_dim, value_dim] of each head, of delta_rule() or ssm_scan().
  int32_t heads = 0;  ///< 0: none
  int32_t key_dim = 0, value_dim = 0;

  bool operator==(const StateRows&) const = default;
  bool empty() const noexcept { return channels == 0 && heads == 0; }
  size_t window_numbers() const noexcept {
    return static_cast<size_t>(channels) * static_cast<size_t>(window);
  }
  size_t matrix_numbers() const noexcept {
    return static_cast<size_t>(heads) * static_cast<size_t>(key_dim) *
           static_cast<size_t>(value_dim);
  }
  size_t numbers() const noexcept { return window_numbers() + matrix_numbers(); }
};

struct CacheGroup {
  PagedRows rows;  ///< of each layer
  int32_t num_layers = 0;
};

/// Where a layer's rows are.
struct CachePlace {
  int32_t group = 0;  ///< < 0: it keeps none
  int32_t slot = 0;   ///< part of the block
};

struct CacheLayout {
  int32_t block_size = 64;         ///< tokens per block: a multiple of 16
  std::vector<CacheGroup> groups;  ///< of one dtype
  std::vector<CachePlace> layers;  ///< by number
  /// By number, too; empty: no layer keeps a state.
  std::vector<StateRows> states;

  int32_t num_groups() const noexcept { return static_cast<int32_t>(groups.size()); }
  int32_t num_layers() const noexcept { return static_cast<int32_t>(layers.size()); }
  const CachePlace& place(int32_t layer) const { return layers[static_cast<size_t>(layer)]; }
  /// REQUIRES: the layer has a place.
  const PagedRows& rows(int32_t layer) const {
    return groups[static_cast<size_t>(place(layer).group)].rows;
  }
  DType dtype() const { return groups.front().rows.dtype; }

  bool has_states() const noexcept { return !states.empty(); }
  const StateRows& state(int32_t layer) const { return states[static_cast<size_t>(layer)]; }

  /// All layers keep the same.
  static CacheLayout uniform(int32_t num_layers, const PagedRows& rows, int32_t block_size) {
    CacheLayout out{block_size, {{rows, num_layers}}, {}, {}};
    for (int32_t i = 0; i < num_layers; ++i) out.layers.push_back({0, i});
    return out;
  }
};

}  // namespace headrace
