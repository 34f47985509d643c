#pragma once

// The oracle's choice of experts: a sort, and sums in double.

#include <cstdint>
#include <vector>

#include "backend/contract/experts_op.h"

namespace headrace {

/// Steps 2 to 8 of RouterSpec for one row. `correction` may be null; ids and weights [top_k].
void reference_route_row(const RouterSpec& spec, const std::vector<float>& logits,
                         const float* correction, int32_t* ids, float* weights);

}  // namespace headrace
