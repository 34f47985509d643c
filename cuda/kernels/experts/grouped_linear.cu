#include "cuda/kernels/experts/grouped_linear.h"

#include "cuda/kernels/experts/grouped_kernels.cuh"

namespace headrace::cuda {

int32_t grouped_tile_rows(DType dtype, int64_t rows, int64_t top_k, int64_t experts) {
  constexpr int32_t kF32TileRows = 32;
  if (dtype == DType::kF32) return kF32TileRows;
  if (rows <= kSkinnyTileRows / 2) return kSkinnyTileRows / 2;
  // Where experts have more rows than a warp's tile, several warps would read each weight.
  const int64_t expected = divide_up(rows * top_k, experts);
  if (rows <= kSkinnyTileRows || expected <= kSkinnyTileRows / 2) return kSkinnyTileRows;
  return expected <= 64 ? 64 : 128;
}

void grouped_linear(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.layout.n >= 1 && args.layout.k >= 1, args.layout.n, " x ", args.layout.k);
  HEADRACE_CHECK(!args.silu_mul || args.layout.gate_up);
  HEADRACE_CHECK(args.x.cols == args.layout.k &&
                     args.out.cols == (args.silu_mul ? args.layout.n / 2 : args.layout.n),
                 args.x.cols, " to ", args.out.cols);
  if (args.num_tiles == 0) return;
  if (args.dtype == DType::kF32) return grouped_f32(args, stream);
  return args.tile_rows <= kSkinnyTileRows ? grouped_skinny(args, stream)
                                           : grouped_tiles(args, stream);
}

}  // namespace headrace::cuda
