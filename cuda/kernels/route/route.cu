#include "cuda/kernels/route/route.h"

#include "cuda/kernels/route/route_kernels.h"

namespace headrace::cuda {

void route(const RouteArgs& args, Stream stream) {
  if (args.x.rows == 0) return;
  route_logits(args, stream);
  route_choose(args, stream);
}

}  // namespace headrace::cuda
