#pragma once

// The kernels behind route().

#include "cuda/kernels/route/route.h"

namespace headrace::cuda {

/// logits = x . gate^T (+ bias).
void route_logits(const RouteArgs& args, Stream stream);

/// ids and weights by the logits.
void route_choose(const RouteArgs& args, Stream stream);

}  // namespace headrace::cuda
