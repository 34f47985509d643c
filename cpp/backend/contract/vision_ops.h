#pragma once

// What Backend's ops of vision towers are told.

#include <cstdint>
#include <span>

#include "backend/contract/activation.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// Sizes of heads that segment_attention() takes: multiples of the unit.
inline constexpr int32_t kSegmentHeadUnit = 8;
inline constexpr int32_t kMaxSegmentHead = 128;

/// What segment_attention() works on: out = softmax(scale * q . K^T) . V of each row over all rows
/// of its segment, before it and behind it, and no others. N rows are cut into segments; the
/// queries are R neighbours of them. Keys are visited in tiles anchored at the segment's start,
/// merged in index order: a row's bits depend on its query and its segment's keys and values.
/// Moves at least (2*R + 2*N)*heads*d*act bytes and takes 4*heads*d operations for each pair of a
/// query and a key that it sees.
struct SegmentAttention {
  TensorView q;       ///< [R, heads*d] act: rows [first, first + R) of N
  TensorView k, v;    ///< [N, heads*d] act
  int32_t first = 0;  ///< of the queries
  /// Host memory. Where segments end, ascending; the last one at N.
  std::span<const int32_t> segment_ends;
  int32_t heads = 0;
  int32_t head_dim = 0;  ///< d, a multiple of kSegmentHeadUnit up to kMaxSegmentHead
  float scale = 1.0f;    ///< multiplies q . k
  /// kBF16: queries, keys, values and probabilities may be rounded to bf16 (sums may not), where
  /// that is faster. kF32: they may not; but probabilities may be to act.
  DType products = DType::kF32;
  TensorView out;  ///< [R, heads*d] act; may be q
};

}  // namespace headrace
