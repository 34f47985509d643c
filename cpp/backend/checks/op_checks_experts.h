#pragma once

// More of op_checks.h: the contracts of mixture-of-experts layers. Each throws InternalError.

#include "backend/contract/backend.h"

namespace headrace {

void check_router(const RouterSpec& spec);
void check_route(const TensorView& x, const PackedWeight& gate, const TensorView& logit_bias,
                 const TensorView& correction, const RouterSpec& spec, const TensorView& ids,
                 const TensorView& weights);
/// The gate and the biases alone.
void check_expert_gate(const Experts& args, DType act = DType::kF32);
/// Ids are checked by those who read them.
void check_experts(const Experts& args);
void check_add(const TensorView& x, const TensorView& out);
void check_add_gated(const TensorView& x, const TensorView& gate, const TensorView& delta,
                     const TensorView& out);

}  // namespace headrace
