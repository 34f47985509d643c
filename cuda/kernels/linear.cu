#include "cuda/kernels/linear.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear_kernels.h"

namespace headrace::cuda {
namespace {

void check(const LinearArgs& args) {
  const WeightLayout& layout = args.layout;
  const int64_t cols = args.silu_mul ? layout.n / 2 : layout.n;
  HEADRACE_CHECK(layout.n >= 1 && layout.k >= 1 && (!layout.gate_up || layout.n % 2 == 0), layout.n,
                 " x ", layout.k);
  HEADRACE_CHECK(!args.silu_mul || layout.gate_up);
  HEADRACE_CHECK(args.x.cols == layout.k && args.out.cols == cols && args.out.rows == args.x.rows,
                 args.x.cols, " to ", args.out.cols);
  HEADRACE_CHECK(args.out_dtype == args.dtype || args.out_dtype == DType::kF32,
                 dtype_name(args.out_dtype));
}

}  // namespace

size_t linear_workspace_bytes(int64_t rows, const WeightLayout& layout, int32_t multiprocessors) {
  // Fewer rows have fewer tiles, which may be cut into slices where more aren't.
  size_t bytes = 0;
  for (int64_t r = rows; r > kMaxSkinnyRows; r = r <= 64 ? 0 : (r - 1) / 64 * 64) {
    const size_t needed = linear_tiles_workspace_bytes(r, layout, multiprocessors);
    if (needed > bytes) bytes = needed;
  }
  return bytes;
}

void linear(const LinearArgs& args, Stream stream) {
  check(args);
  if (args.x.rows == 0) return;
  if (args.dtype == DType::kF32) return linear_f32(args, stream);
  if (args.x.rows <= kMaxSkinnyRows) return linear_skinny(args, stream);
  if (args.path == LinearPath::kFastest && can_use_wgmma(args)) return linear_wgmma(args, stream);
  linear_tiles(args, stream);
}

}  // namespace headrace::cuda
