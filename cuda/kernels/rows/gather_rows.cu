#include "cuda/kernels/rows/gather_rows.h"

#include "cuda/kernels/rows/row_copy.cuh"

namespace headrace::cuda {

void gather_rows(const GatherRowsArgs& args, Stream stream) {
  copy_rows("gather_rows", args.dtype, args.x, ChosenRows{args.rows}, EveryRow{}, args.out, stream);
}

}  // namespace headrace::cuda
