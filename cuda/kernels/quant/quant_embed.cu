#include "cuda/kernels/quant/quant_embed.h"

#include "cuda/kernels/quant/quant_task.cuh"
#include "cuda/kernels/rows/row_copy.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void quant_embed_kernel(QuantWeightView table, PickedRows rows, T* out, int64_t stride,
                                   int64_t cols) {
  start_next();
  wait_for_previous();
  const int64_t row = rows[blockIdx.x];
  for (int64_t k = threadIdx.x; k < cols; k += kThreads) {
    out[blockIdx.x * stride + k] = from_float<T>(row < 0 ? 0.0f : table.at(row, k));
  }
}

}  // namespace

void quant_embed(const QuantEmbedArgs& args, Stream stream) {
  const EmbedArgs& embed = args.embed;
  HEADRACE_CHECK(!args.layout.matrix.gate_up && !args.layout.format.reordered);
  if (embed.out.rows == 0) return;
  with_element(embed.dtype, [&](auto element) {
    using T = decltype(element);
    launch("quant_embed", quant_embed_kernel<T>,
           {.grid = {grid_size(embed.out.rows)}, .threads = kThreads, .overlaps = true}, stream,
           view_of(args.layout, embed.table.data),
           PickedRows{embed.token_ids, embed.drawn_by, embed.drawn, embed.first, embed.count},
           static_cast<T*>(embed.out.data), embed.out.stride, embed.out.cols);
  });
}

}  // namespace headrace::cuda
