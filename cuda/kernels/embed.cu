#include "cuda/kernels/embed.h"

#include "cuda/kernels/row_copy.cuh"

namespace headrace::cuda {

void embed(const EmbedArgs& args, Stream stream) {
  copy_rows("embed", args.dtype, args.table, PickedRows{args.token_ids, args.drawn_by, args.drawn},
            EveryRow{}, args.out, stream);
}

}  // namespace headrace::cuda
