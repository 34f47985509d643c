#include "cuda/kernels/linear/linear_skinny.cuh"

#include "cuda/kernels/linear/linear_kernels.h"

namespace headrace::cuda {
namespace {

using namespace skinny;

/// kStages units of k of the weight are on their way to a warp, the first of them before the kernel
/// ahead has ended.
template <class T, class Out, int kTokenTiles, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kWarp)
    linear_skinny_kernel(Weights<T> weights, DenseTokens<T> tokens, LinearOutput<T, Out> out) {
  using Ring = WarpRing<T, DenseTokens<T>, kTokenTiles, kStages>;
  start_next();
  const int64_t first = (int64_t{blockIdx.x} * kWarps + warp_id()) * kFeatures;
  if (first >= weights.stored_rows) return wait_for_previous();
  const Ring ring{weights, weights.data + first * weights.stride, tokens,
                  shared_memory() + warp_id() * kStages * Ring::kBytes};
  ring.load_first_weights();
  wait_for_previous();
  typename Ring::Sums sums = {};
  ring.multiply_all(sums);
  write_warp_sums(sums, tokens.rows, 0, first, out);
}

template <class T, class Out, int kTokenTiles, int kWarps, int kStages>
void run_with(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const auto* x = static_cast<const T*>(args.x.data);
  const DenseTokens<T> tokens{x, args.x.stride, static_cast<int>(args.x.rows),
                              is_vectorizable(x, args.x.stride, 0)};
  constexpr int kRingBytes = WarpRing<T, DenseTokens<T>, kTokenTiles, kStages>::kBytes * kStages;
  const LaunchShape shape{
      .grid = {grid_size(divide_up<int64_t>(layout.stored_rows(), kFeatures * kWarps))},
      .threads = kWarps * kWarp,
      .shared_bytes = static_cast<size_t>(kRingBytes * kWarps),
      .overlaps = true};
  launch("linear_skinny", linear_skinny_kernel<T, Out, kTokenTiles, kWarps, kStages>, shape, stream,
         weights_of<T>(args.weight, layout), tokens, linear_output<T, Out>(args));
}

/// 96 KiB a block: two of them fill a multiprocessor of sm_90, one the smallest there is. Narrow
/// weights have few warps, which then hold more of k each.
template <class T, class Out, int kTokenTiles>
void run(const LinearArgs& args, Stream stream) {
  constexpr int kStages = 32 / (1 + kTokenTiles);
  const int64_t warps = args.layout.stored_rows() / kFeatures;
  if (warps <= int64_t{4} * args.multiprocessors) {
    run_with<T, Out, kTokenTiles, 2, kStages>(args, stream);
  } else {
    run_with<T, Out, kTokenTiles, 4, kStages / 2>(args, stream);
  }
}

}  // namespace

void linear_skinny(const LinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.rows <= kMaxSkinnyRows && args.layout.stride() <= 0x7fffffff, args.x.rows);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (args.x.rows <= 8) {
      run<T, Out, 1>(args, stream);
    } else {
      run<T, Out, 2>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
