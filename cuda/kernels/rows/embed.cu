#include "cuda/kernels/rows/embed.h"

#include "cuda/kernels/rows/row_copy.cuh"

namespace headrace::cuda {

void embed(const EmbedArgs& args, Stream stream) {
  copy_rows("embed", args.dtype, args.table,
            PickedRows{args.token_ids, args.drawn_by, args.drawn, args.first, args.count},
            EveryRow{}, args.out, stream);
}

}  // namespace headrace::cuda
