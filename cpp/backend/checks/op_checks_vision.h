#pragma once

// More of op_checks.h: the contracts of the ops of vision towers. Each throws InternalError. `act`:
// the dtype of activations.

#include <span>

#include "backend/contract/backend.h"

namespace headrace {

void check_activate(Activation kind, const TensorView& x, DType act = DType::kF32);
void check_rotate(const TensorView& x, const TensorView& table, int32_t heads, int32_t head_dim,
                  DType act = DType::kF32);
void check_scatter_rows(const TensorView& x, std::span<const int32_t> rows, const TensorView& out,
                        DType act = DType::kF32);
void check_segment_attention(const SegmentAttention& args, DType act = DType::kF32);

}  // namespace headrace
