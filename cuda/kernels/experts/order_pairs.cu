#include "cuda/kernels/experts/order_pairs.h"

#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 256;

/// A block has some columns of a tile's rows, all of one expert.
template <class T>
__global__ void order_pairs_kernel(const T* x, int64_t x_stride, const int32_t* pair_rows,
                                   const int32_t* orders, const ExpertTile* tiles, T* out,
                                   int64_t out_stride, int64_t cols) {
  start_next();
  wait_for_previous();
  const ExpertTile tile = tiles[blockIdx.x];
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (column >= cols || tile.rows == 0) return;
  const int64_t from = orders[tile.expert * cols + column];
  for (int64_t pair = tile.first; pair < tile.first + tile.rows; ++pair) {
    out[pair * out_stride + column] = x[pair_rows[pair] * x_stride + from];
  }
}

}  // namespace

void order_pairs(const OrderPairsArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.cols == args.out.cols, args.x.cols, " and ", args.out.cols);
  if (args.num_tiles == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    launch(
        "order_pairs", order_pairs_kernel<T>,
        {.grid = {grid_size(args.num_tiles), grid_size(divide_up<int64_t>(args.x.cols, kThreads))},
         .threads = kThreads,
         .overlaps = true},
        stream, static_cast<const T*>(args.x.data), args.x.stride, args.pair_rows, args.orders,
        args.tiles, static_cast<T*>(args.out.data), args.out.stride, args.x.cols);
  });
}

}  // namespace headrace::cuda
