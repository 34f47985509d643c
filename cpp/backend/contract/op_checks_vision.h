#pragma once

// More of op_checks.h: the contracts of the ops of vision towers. Each throws InternalError.

#include <span>

#include "backend/contract/backend.h"

namespace headrace {

void check_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out);
void check_activate(Activation kind, const TensorView& x);
void check_rotate(const TensorView& x, const TensorView& table, int32_t heads, int32_t head_dim);
void check_scatter_rows(const TensorView& x, std::span<const int32_t> rows, const TensorView& out);
void check_segment_attention(const SegmentAttention& args);

}  // namespace headrace
