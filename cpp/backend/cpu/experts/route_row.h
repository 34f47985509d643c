#pragma once

// One row's choice of experts.

#include <cstdint>

#include "backend/contract/experts_op.h"

namespace headrace {

/// Steps 2 to 9 of RouterSpec. `logits` [num_experts], whose contents are lost; `correction`
/// [num_experts] or null; ids and weights [top_k]. REQUIRES: check_router(spec).
void route_row(const RouterSpec& spec, float* logits, const float* correction, int32_t* ids,
               float* weights);

}  // namespace headrace
