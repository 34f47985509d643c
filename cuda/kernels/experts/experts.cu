#include "cuda/kernels/experts/experts.h"

#include "cuda/kernels/experts/add_experts.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/experts/sort_pairs.h"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastRows = 16;

int64_t rows_at_once(const ExpertsShape& shape) {
  const int64_t row_bytes =
      shape.top_k * (shape.down.k + shape.down.n) * static_cast<int64_t>(dtype_size(shape.dtype));
  return least(shape.rows, greatest(shape.most_pair_bytes / row_bytes, kLeastRows));
}

/// Where things lie in the workspace.
struct Workspace {
  int64_t pair_rows, places, tiles, inner, results, bytes;
  int64_t num_tiles;
  int32_t tile_rows;

  Workspace(const ExpertsShape& shape, int64_t rows) {
    const auto element = static_cast<int64_t>(dtype_size(shape.dtype));
    const int64_t pairs = rows * shape.top_k;
    tile_rows = grouped_tile_rows(shape.dtype, rows, shape.top_k, shape.experts);
    num_tiles = most_expert_tiles(rows, shape.top_k, shape.experts, tile_rows);
    bytes = 0;
    const auto place = [this](int64_t size) {
      const int64_t at = bytes;
      bytes += divide_up(size, kAlignment) * kAlignment;
      return at;
    };
    pair_rows = place(pairs * static_cast<int64_t>(sizeof(int32_t)));
    places = place(pairs * static_cast<int64_t>(sizeof(int32_t)));
    // More rows never take less, whatever their tiles.
    const int64_t most = most_expert_tiles(rows, shape.top_k, shape.experts, 1);
    tiles = place(most * static_cast<int64_t>(sizeof(ExpertTile)));
    inner = place(pairs * inner_stride(shape) * element);
    results = place(pairs * shape.down.n * element);
  }
  /// Rows of what gate and up give are aligned.
  static int64_t inner_stride(const ExpertsShape& shape) { return shape.down.stride(); }
};

void check(const ExpertsArgs& args) {
  const ExpertsShape& shape = args.shape;
  HEADRACE_CHECK(shape.gate_up.gate_up && !shape.down.gate_up);
  HEADRACE_CHECK(shape.gate_up.n == 2 * shape.down.k && shape.gate_up.k == shape.down.n,
                 shape.gate_up.n, " x ", shape.gate_up.k, " and ", shape.down.n, " x ",
                 shape.down.k);
  HEADRACE_CHECK(args.x.rows == shape.rows && args.out.rows == shape.rows, args.x.rows);
  HEADRACE_CHECK(args.x.cols == shape.down.n && args.out.cols == shape.down.n, args.x.cols);
}

/// `args` are of rows that are computed at once.
void run(const ExpertsArgs& args, Stream stream) {
  const ExpertsShape& shape = args.shape;
  const Workspace at(shape, shape.rows);
  auto* const memory = static_cast<char*>(args.workspace);
  auto* const pair_rows = reinterpret_cast<int32_t*>(memory + at.pair_rows);
  auto* const places = reinterpret_cast<int32_t*>(memory + at.places);
  auto* const tiles = reinterpret_cast<ExpertTile*>(memory + at.tiles);
  const int64_t pairs = shape.rows * shape.top_k;
  const Matrix inner{memory + at.inner, pairs, shape.down.k, Workspace::inner_stride(shape)};
  const Matrix results{memory + at.results, pairs, shape.down.n, shape.down.n};
  sort_pairs({.ids = args.ids,
              .ids_stride = args.ids_stride,
              .rows = shape.rows,
              .top_k = shape.top_k,
              .experts = static_cast<int32_t>(shape.experts),
              .used_rows = args.used_rows,
              .tile_rows = at.tile_rows,
              .pair_rows = pair_rows,
              .places = places,
              .tiles = tiles},
             stream);
  GroupedLinearArgs product{.dtype = shape.dtype,
                            .x = args.x,
                            .pair_rows = pair_rows,
                            .weight = args.gate_up,
                            .layout = shape.gate_up,
                            .silu_mul = true,
                            .out = inner,
                            .tiles = tiles,
                            .num_tiles = at.num_tiles,
                            .tile_rows = at.tile_rows,
                            .multiprocessors = args.multiprocessors};
  grouped_linear(product, stream);
  product.x = inner;
  product.pair_rows = nullptr;
  product.weight = args.down;
  product.layout = shape.down;
  product.silu_mul = false;
  product.out = results;
  grouped_linear(product, stream);
  add_experts({.dtype = shape.dtype,
               .pairs = results,
               .places = places,
               .weights = args.weights,
               .weights_stride = args.weights_stride,
               .top_k = shape.top_k,
               .out = args.out},
              stream);
}

}  // namespace

size_t experts_workspace_bytes(const ExpertsShape& shape) {
  return shape.rows == 0 ? 0 : static_cast<size_t>(Workspace(shape, rows_at_once(shape)).bytes);
}

void experts(const ExpertsArgs& args, Stream stream) {
  check(args);
  const int64_t rows = args.shape.rows, most = rows_at_once(args.shape);
  HEADRACE_CHECK(args.used_rows == nullptr || rows == most, rows);
  const auto element = static_cast<int64_t>(dtype_size(args.shape.dtype));
  for (int64_t first = 0; first < rows; first += most) {
    ExpertsArgs part = args;
    const int64_t count = least(most, rows - first);
    part.shape.rows = part.x.rows = part.out.rows = count;
    part.x.data = static_cast<const char*>(args.x.data) + first * args.x.stride * element;
    part.out.data = static_cast<char*>(args.out.data) + first * args.out.stride * element;
    part.ids += first * args.ids_stride;
    part.weights += first * args.weights_stride;
    run(part, stream);
  }
}

}  // namespace headrace::cuda
