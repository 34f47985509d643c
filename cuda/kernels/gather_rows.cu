#include "cuda/kernels/gather_rows.h"

#include "cuda/kernels/row_copy.cuh"

namespace headrace::cuda {

void gather_rows(const GatherRowsArgs& args, Stream stream) {
  copy_rows("gather_rows", args.dtype, args.x, ChosenRows{args.rows}, EveryRow{}, args.out, stream);
}

}  // namespace headrace::cuda
