#pragma once

#include <span>
#include <vector>

#include "cuda/host/runtime/cuda_check.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// Up to kSegmentRows neighbouring rows of one segment: what a block of tensor cores has.
struct SegmentItem {
  int32_t row = 0, end_row = 0;
  int32_t first_key = 0, end_key = 0;  ///< of the segment
};

inline constexpr int32_t kSegmentRows = 64;

/// All rows of segments that end at `ends`, in order.
std::vector<SegmentItem> segment_items(std::span<const int32_t> ends);

struct SegmentAttentionArgs {
  DType dtype = DType::kF32;  ///< of everything
  ConstMatrix q;              ///< [R, heads * head_dim]: rows from `first` on
  ConstMatrix k, v;           ///< [N, heads * head_dim]
  int64_t first = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;  ///< a multiple of 8 up to 128
  float scale = 1.0f;
  /// Device memory: all that have rows of q, and perhaps others. Rows outside of q are left out.
  const SegmentItem* items = nullptr;
  int32_t num_items = 0;
  Matrix out;  ///< [R, heads * head_dim]; may be q
};

/// See Backend::segment_attention. 16-bit elements: tensor cores, with probabilities rounded to the
/// dtype; float32, rows not aligned to 16 bytes and scales <= 0: plain float32. Sums in float32. A
/// row's bits depend on its query and its segment's keys and values. Reads the keys and values of a
/// segment once for each item.
void segment_attention(const SegmentAttentionArgs& args, Stream stream);

}  // namespace headrace::cuda
