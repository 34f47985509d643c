#include "cuda/kernels/rounded/rounded_few.cuh"

namespace headrace::cuda {
namespace {

using few::kMostTiles;

template <class Code, class T, class Out, int kTokenTiles>
__global__ void __launch_bounds__(few::most_threads(kTokenTiles), 1)
    rounded_few_kernel(RoundedTask task, int tiles, LinearOutput<T, Out> out) {
  start_next();
  few::multiply_block<Code, kTokenTiles>(
      task, tiles, blockIdx.x, [] { wait_for_previous(); }, 0, out);
}

template <class Code, class T, class Out, int kTokenTiles>
void run(const QuantLinearArgs& args, Stream stream) {
  const RoundedTask task = rounded_task(args);
  const bool wide =
      kTokenTiles < 4 && task.tiles / kMostTiles >= int64_t{2} * args.linear.multiprocessors;
  const int tiles = wide ? kMostTiles : kMostTiles / 2;
  launch("rounded_few", rounded_few_kernel<Code, T, Out, kTokenTiles>,
         {.grid = {grid_size(task.tiles / tiles)},
          .threads = static_cast<unsigned>(few::block_threads(tiles)),
          .shared_bytes = static_cast<size_t>(few::sum_bytes(tiles, kTokenTiles)),
          .overlaps = true},
         stream, task, tiles, linear_output<T, Out>(args.linear));
}

}  // namespace

void rounded_linear_few(const QuantLinearArgs& args, Stream stream) {
  const int64_t rows = args.linear.x.rows;
  HEADRACE_CHECK(rows <= kMostQuantFewRows, rows);
  with_rounded_types(args, [&](auto code, auto element, auto result) {
    using Code = decltype(code);
    using T = decltype(element);
    using Out = decltype(result);
    if (rows <= 8) return run<Code, T, Out, 1>(args, stream);
    if (rows <= 16) return run<Code, T, Out, 2>(args, stream);
    run<Code, T, Out, 4>(args, stream);
  });
}

}  // namespace headrace::cuda
