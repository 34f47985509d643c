#include "cuda/kernels/linear/linear.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

void check(const LinearArgs& args) {
  const WeightLayout& layout = args.layout;
  const int64_t cols = args.gate_mul ? layout.n / 2 : layout.n;
  HEADRACE_CHECK(layout.n >= 1 && layout.k >= 1 && (!layout.gate_up || layout.n % 2 == 0), layout.n,
                 " x ", layout.k);
  HEADRACE_CHECK(!args.gate_mul || layout.gate_up);
  HEADRACE_CHECK(args.x.cols == layout.k && args.out.cols == cols && args.out.rows == args.x.rows,
                 args.x.cols, " to ", args.out.cols);
  HEADRACE_CHECK(args.out_dtype == args.dtype || args.out_dtype == DType::kF32,
                 dtype_name(args.out_dtype));
}

/// By wgmma.
void linear_planned(const LinearArgs& args, Stream stream) {
  const LinearSize size{args.x.rows, args.layout.stored_rows(), args.layout.stride()};
  const ClusterRoom room = cluster_room(args.multiprocessors, stream);
  const LinearPlan plan = args.plan != nullptr ? *args.plan : plan_linear(size, room);
  if (plan.streams) return linear_stream_tiles(args, plan, stream);
  linear_wgmma(args, plan, room, stream);
}

}  // namespace

bool can_use_wgmma(const LinearArgs& args) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return args.has_wgmma && args.dtype != DType::kF32 && aligned(args.x.data) &&
         aligned(args.weight) && args.x.stride % 8 == 0 && args.x.rows <= 0x7fffffff &&
         args.layout.stored_rows() <= 0x7fffffff && args.layout.stride() <= 0x7fffffff;
}

void linear(const LinearArgs& args, Stream stream) {
  check(args);
  const int64_t rows = args.x.rows;
  if (rows == 0) return;
  if (args.dtype == DType::kF32) return linear_f32(args, stream);
  if (can_use_wgmma(args)) {
    const bool few = rows <= kMaxStreamRows && args.plan == nullptr;
    if (few) return linear_stream(args, stream);
    if (wgmma_takes_gate(args)) return linear_planned(args, stream);
  }
  return rows <= kMaxSkinnyRows ? linear_skinny(args, stream) : linear_tiles(args, stream);
}

}  // namespace headrace::cuda
