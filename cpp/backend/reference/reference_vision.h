#pragma once

// The reference's ops of vision towers: plain loops with double sums.

#include "backend/contract/backend.h"

namespace headrace {

void reference_activate(Activation kind, const TensorView& x);
void reference_rotate(const TensorView& x, const TensorView& table, int32_t heads,
                      int32_t head_dim);
/// Rounds nothing to bf16.
void reference_segment_attention(const SegmentAttention& args);

}  // namespace headrace
