#include "cuda/kernels/rounded/rounded_linear.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounded/round_rows.h"

namespace headrace::cuda {

void rounded_linear(const QuantLinearArgs& args, Stream stream) {
  const LinearArgs& linear = args.linear;
  HEADRACE_CHECK(args.rounded != nullptr && args.format.bits == 8 &&
                     args.format.group_size == kQuantUnit && !args.format.zero_points &&
                     !args.format.reordered,
                 args.format.bits);
  HEADRACE_CHECK(!args.is_rounded || linear.x.rows <= kMostRoundedRows, linear.x.rows);
  for (int64_t first = 0; first < linear.x.rows; first += kMostRoundedRows) {
    const int64_t left = linear.x.rows - first;
    const QuantLinearArgs piece =
        piece_of(args, first, left < kMostRoundedRows ? left : kMostRoundedRows);
    if (!args.is_rounded) {
      round_rows({.dtype = linear.dtype,
                  .x = piece.linear.x,
                  .layout = {linear.layout, args.format},
                  .out = args.rounded},
                 stream);
    }
    if (rounded_can_use_wgmma(piece)) {
      rounded_linear_wgmma(piece, stream);
    } else if (piece.linear.x.rows <= kMostQuantFewRows) {
      rounded_linear_few(piece, stream);
    } else {
      rounded_linear_tiles(piece, stream);
    }
  }
}

}  // namespace headrace::cuda
