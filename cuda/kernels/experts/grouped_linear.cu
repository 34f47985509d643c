#include "cuda/kernels/experts/grouped_linear.h"

#include "cuda/kernels/experts/grouped_kernels.cuh"

namespace headrace::cuda {

int32_t grouped_tile_rows(DType dtype, bool quantized, int64_t rows, int64_t top_k,
                          int64_t experts) {
  if (dtype == DType::kF32) return kF32TileRows;
  if (rows <= kSkinnyTileRows / 2) return kSkinnyTileRows / 2;
  // Where experts have more rows than a warp's tile, several warps would read each weight.
  const int64_t expected = divide_up(rows * top_k, experts);
  if (rows <= kSkinnyTileRows || expected <= kSkinnyTileRows / 2) return kSkinnyTileRows;
  return quantized || expected <= kQuantTileRows ? kQuantTileRows : 128;
}

void grouped_linear(const GroupedLinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.layout.n >= 1 && args.layout.k >= 1, args.layout.n, " x ", args.layout.k);
  HEADRACE_CHECK(!args.gate_mul || args.layout.gate_up);
  HEADRACE_CHECK(args.x.cols == args.layout.k &&
                     args.out.cols == (args.gate_mul ? args.layout.n / 2 : args.layout.n),
                 args.x.cols, " to ", args.out.cols);
  HEADRACE_CHECK(args.quant.bits == 0 ||
                 ((args.quant.activations == Activations::kWhole || rounds_rows(args.quant)) &&
                  !args.quant.reordered));
  HEADRACE_CHECK(!rounds_rows(args.quant) || args.rounded != nullptr);
  HEADRACE_CHECK(args.tiles != nullptr || args.num_tiles == 0 || args.quant.bits == 0);
  if (args.num_tiles == 0) return;
  if (rounds_rows(args.quant)) return grouped_rounded(args, stream);
  if (args.dtype == DType::kF32) return grouped_f32(args, stream);
  if (args.quant.bits != 0) return grouped_quant(args, stream);
  return args.tile_rows <= kSkinnyTileRows ? grouped_skinny(args, stream)
                                           : grouped_tiles(args, stream);
}

}  // namespace headrace::cuda
