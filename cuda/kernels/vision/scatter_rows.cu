#include "cuda/kernels/vision/scatter_rows.h"

#include "cuda/kernels/rows/row_copy.cuh"

namespace headrace::cuda {

void scatter_rows(const ScatterRowsArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.cols == args.out.cols, args.x.cols, " and ", args.out.cols);
  copy_rows("scatter_rows", args.dtype, args.x, EveryRow{}, ChosenRows{args.rows},
            {args.out.data, args.x.rows, args.out.cols, args.out.stride}, stream);
}

}  // namespace headrace::cuda
