#include "cuda/kernels/experts/experts.h"

#include "cuda/kernels/elementwise/activate.h"
#include "cuda/kernels/experts/add_experts.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/experts/order_pairs.h"
#include "cuda/kernels/experts/sort_pairs.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounded/round_rows.h"

namespace headrace::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kLeastRows = 16;

int64_t rows_at_once(const ExpertsShape& shape) {
  const int64_t ordered = shape.gate_up_quant.reordered ? shape.gate_up.k : 0;
  const int64_t row_bytes = shape.top_k * (ordered + shape.down.k + shape.down.n) *
                            static_cast<int64_t>(dtype_size(shape.dtype));
  return least(shape.rows, greatest(shape.most_pair_bytes / row_bytes, kLeastRows));
}

/// Where things lie in the workspace.
struct Workspace {
  int64_t pair_rows, places, num_pairs, tiles, ordered, inner, results, rounded, bytes;
  int64_t num_tiles;
  int32_t tile_rows;

  Workspace(const ExpertsShape& shape, int64_t rows) {
    const auto element = static_cast<int64_t>(dtype_size(shape.dtype));
    const int64_t pairs = rows * shape.top_k;
    const bool quantized = shape.gate_up_quant.bits != 0 || shape.down_quant.bits != 0;
    tile_rows = grouped_tile_rows(shape.dtype, quantized, rows, shape.top_k, shape.experts);
    num_tiles = most_expert_tiles(rows, shape.top_k, shape.experts, tile_rows);
    bytes = 0;
    const auto place = [this](int64_t size) {
      const int64_t at = bytes;
      bytes += divide_up(size, kAlignment) * kAlignment;
      return at;
    };
    pair_rows = place(pairs * static_cast<int64_t>(sizeof(int32_t)));
    places = place(pairs * static_cast<int64_t>(sizeof(int32_t)));
    num_pairs = place(sizeof(int32_t));
    // More rows never take less, whatever their tiles.
    const int64_t most = most_expert_tiles(rows, shape.top_k, shape.experts, 1);
    tiles = place(most * static_cast<int64_t>(sizeof(ExpertTile)));
    const bool reordered = shape.gate_up_quant.reordered;
    ordered = place(reordered ? pairs * shape.gate_up.stride() * element : 0);
    inner = place(pairs * inner_stride(shape) * element);
    results = place(pairs * shape.down.n * element);
    // One product's rows have been read when the next one's are written.
    rounded = place(greatest(rounded_bytes(shape.gate_up, shape.gate_up_quant, rows),
                             rounded_bytes(shape.down, shape.down_quant, pairs)));
  }
  static int64_t rounded_bytes(const WeightLayout& layout, const QuantFormat& format,
                               int64_t rows) {
    return rounds_rows(format) ? RoundedRows({layout, format}, rows).bytes() : 0;
  }
  /// Rows of what gate and up give are aligned.
  static int64_t inner_stride(const ExpertsShape& shape) { return shape.down.stride(); }
};

void check(const ExpertsArgs& args) {
  const ExpertsShape& shape = args.shape;
  HEADRACE_CHECK(!shape.down.gate_up && !shape.down_quant.reordered);
  HEADRACE_CHECK(shape.gate_up.n == (shape.gate_up.gate_up ? 2 : 1) * shape.down.k &&
                     shape.gate_up.k == shape.down.n,
                 shape.gate_up.n, " x ", shape.gate_up.k, " and ", shape.down.n, " x ",
                 shape.down.k);
  HEADRACE_CHECK(args.x.rows == shape.rows && args.out.rows == shape.rows, args.x.rows);
  HEADRACE_CHECK(args.x.cols == shape.down.n && args.out.cols == shape.down.n, args.x.cols);
}

/// Each pair's row of x in its expert's order, at `ordered`: what `product` reads from then on.
void put_in_order(const ExpertsArgs& args, void* ordered, GroupedLinearArgs& product,
                  Stream stream) {
  const ExpertsShape& shape = args.shape;
  const QuantLayout layout{shape.gate_up, shape.gate_up_quant};
  const Matrix out{ordered, shape.rows * shape.top_k, shape.gate_up.k, shape.gate_up.stride()};
  order_pairs({.dtype = shape.dtype,
               .x = args.x,
               .pair_rows = product.pair_rows,
               .orders = reinterpret_cast<const int32_t*>(static_cast<const char*>(args.gate_up) +
                                                          layout.order_at(shape.experts)),
               .tiles = product.tiles,
               .num_tiles = product.num_tiles,
               .out = out},
              stream);
  product.x = out;
  product.pair_rows = nullptr;
  product.quant.reordered = false;
}

/// `args` are of rows that are computed at once, the first of which is `first_row` of all.
void run(const ExpertsArgs& args, int64_t first_row, Stream stream) {
  const ExpertsShape& shape = args.shape;
  const Workspace at(shape, shape.rows);
  auto* const memory = static_cast<char*>(args.workspace);
  auto* const pair_rows = reinterpret_cast<int32_t*>(memory + at.pair_rows);
  auto* const places = reinterpret_cast<int32_t*>(memory + at.places);
  auto* const num_pairs = reinterpret_cast<int32_t*>(memory + at.num_pairs);
  auto* const tiles = reinterpret_cast<ExpertTile*>(memory + at.tiles);
  const int64_t pairs = shape.rows * shape.top_k;
  const Matrix inner{memory + at.inner, pairs, shape.down.k, Workspace::inner_stride(shape)};
  const Matrix results{memory + at.results, pairs, shape.down.n, shape.down.n};
  sort_pairs({.ids = args.ids,
              .ids_stride = args.ids_stride,
              .rows = shape.rows,
              .top_k = shape.top_k,
              .experts = static_cast<int32_t>(shape.experts),
              .first_expert = shape.first_expert,
              .used_rows = args.used_rows,
              .first_row = first_row,
              .tile_rows = at.tile_rows,
              .pair_rows = pair_rows,
              .places = places,
              .num_pairs = num_pairs,
              .tiles = tiles},
             stream);
  GroupedLinearArgs product{.dtype = shape.dtype,
                            .x = args.x,
                            .pair_rows = pair_rows,
                            .weight = args.gate_up,
                            .layout = shape.gate_up,
                            .quant = shape.gate_up_quant,
                            .rounded = memory + at.rounded,
                            .gate_mul = shape.gate_up.gate_up,
                            .gate = args.gate,
                            .bias = args.gate_up_bias,
                            .out = inner,
                            .tiles = tiles,
                            .num_tiles = at.num_tiles,
                            .tile_rows = at.tile_rows,
                            .multiprocessors = args.multiprocessors};
  if (shape.gate_up_quant.reordered) put_in_order(args, memory + at.ordered, product, stream);
  grouped_linear(product, stream);
  if (!product.gate_mul) {
    activate({.dtype = shape.dtype, .kind = args.gate.activation, .x = inner}, stream);
  }
  product.x = inner;
  product.pair_rows = nullptr;
  product.weight = args.down;
  product.layout = shape.down;
  product.quant = shape.down_quant;
  product.used_rows = num_pairs;
  product.gate_mul = false;
  product.bias = args.down_bias;
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
  const auto element = static_cast<int64_t>(dtype_size(args.shape.dtype));
  for (int64_t first = 0; first < rows; first += most) {
    ExpertsArgs part = args;
    const int64_t count = least(most, rows - first);
    part.shape.rows = part.x.rows = part.out.rows = count;
    part.x.data = static_cast<const char*>(args.x.data) + first * args.x.stride * element;
    part.out.data = static_cast<char*>(args.out.data) + first * args.out.stride * element;
    part.ids += first * args.ids_stride;
    part.weights += first * args.weights_stride;
    run(part, first, stream);
  }
}

}  // namespace headrace::cuda
