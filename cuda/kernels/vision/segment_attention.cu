#include "cuda/kernels/vision/segment_attention.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/vision/segment_kernels.h"

namespace headrace::cuda {
namespace {

void check(const SegmentAttentionArgs& args) {
  const int64_t cols = int64_t{args.heads} * args.head_dim;
  HEADRACE_CHECK(args.heads >= 1 && args.heads <= 65535 && args.head_dim >= 8 &&
                     args.head_dim <= 128 && args.head_dim % 8 == 0,
                 args.heads, " of ", args.head_dim);
  HEADRACE_CHECK(args.q.cols == cols && args.k.cols == cols && args.v.cols == cols &&
                     args.out.cols == cols && args.q.rows == args.out.rows &&
                     args.k.rows == args.v.rows,
                 args.q.cols);
}

bool can_use_mma(const SegmentAttentionArgs& args) {
  const auto aligned = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  return args.dtype != DType::kF32 && args.scale > 0.0f && aligned(args.q.data, args.q.stride) &&
         aligned(args.k.data, args.k.stride) && aligned(args.v.data, args.v.stride) &&
         aligned(args.out.data, args.out.stride);
}

}  // namespace

void segment_attention(const SegmentAttentionArgs& args, Stream stream) {
  check(args);
  if (args.q.rows == 0 || args.num_items == 0) return;
  if (can_use_mma(args)) return segment_attention_mma(args, stream);
  segment_attention_plain(args, stream);
}

}  // namespace headrace::cuda
