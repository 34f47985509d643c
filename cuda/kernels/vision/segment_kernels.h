#pragma once

// The kernels behind segment_attention(), which chooses.

#include "cuda/kernels/vision/segment_attention.h"

namespace headrace::cuda {

/// 16-bit elements, keys and values aligned to 16 bytes, a positive scale.
void segment_attention_mma(const SegmentAttentionArgs& args, Stream stream);

/// Any dtype, scale and alignment.
void segment_attention_plain(const SegmentAttentionArgs& args, Stream stream);

}  // namespace headrace::cuda
