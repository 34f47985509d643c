#include "cuda/kernels/quant/quant_linear.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quant/reorder.h"
#include "cuda/kernels/rounded/rounded_linear.h"

namespace headrace::cuda {
namespace {

void check(const QuantLinearArgs& args) {
  const LinearArgs& linear = args.linear;
  const WeightLayout& layout = linear.layout;
  const QuantFormat& format = args.format;
  const int64_t cols = linear.gate_mul ? layout.n / 2 : layout.n;
  HEADRACE_CHECK(layout.n >= 1 && layout.k >= 1 && (!layout.gate_up || layout.n % 2 == 0), layout.n,
                 " x ", layout.k);
  HEADRACE_CHECK(
      (format.bits == 8 || format.bits == 4) &&
          (format.group_size == 32 || format.group_size == 64 || format.group_size == kQuantUnit),
      format.bits, " bits, groups of ", format.group_size);
  HEADRACE_CHECK(format.reordered == (args.reordered != nullptr));
  HEADRACE_CHECK(!linear.gate_mul || layout.gate_up);
  HEADRACE_CHECK(
      linear.x.cols == layout.k && linear.out.cols == cols && linear.out.rows == linear.x.rows,
      linear.x.cols, " to ", linear.out.cols);
  HEADRACE_CHECK(linear.out_dtype == linear.dtype || linear.out_dtype == DType::kF32,
                 dtype_name(linear.out_dtype));
}

void multiply(const QuantLinearArgs& args, Stream stream) {
  if (args.linear.dtype == DType::kF32) return quant_linear_f32(args, stream);
  // Of few rows, too: quant_linear_few takes less time alone, but more in a model, where wgmma's
  // kernels fetch their first weights while the kernel ahead still runs (docs/performance_cuda.md).
  if (quant_can_use_wgmma(args)) return quant_linear_wgmma(args, stream);
  if (args.linear.x.rows <= kMostQuantFewRows) return quant_linear_few(args, stream);
  quant_linear_tiles(args, stream);
}

/// Rows [first, first + count) of a matrix of elements of `dtype`.
template <class M>
M rows_of(const M& all, DType dtype, int64_t first, int64_t count) {
  M out = all;
  if (all.data == nullptr) return out;
  const int64_t bytes = first * all.stride * static_cast<int64_t>(dtype_size(dtype));
  out.data = const_cast<char*>(static_cast<const char*>(all.data)) + bytes;
  out.rows = count;
  return out;
}

}  // namespace

QuantLinearArgs piece_of(const QuantLinearArgs& args, int64_t first, int64_t count) {
  QuantLinearArgs piece = args;
  LinearArgs& linear = piece.linear;
  linear.x = rows_of(linear.x, linear.dtype, first, count);
  linear.residual = rows_of(linear.residual, linear.dtype, first, count);
  linear.out = rows_of(linear.out, linear.out_dtype, first, count);
  return piece;
}

void quant_linear(const QuantLinearArgs& args, Stream stream) {
  check(args);
  const int64_t rows = args.linear.x.rows;
  if (rows == 0) return;
  if (rounds_rows(args.format)) return rounded_linear(args, stream);
  if (!args.format.reordered) return multiply(args, stream);
  const QuantLayout layout{args.linear.layout, args.format};
  const auto* order = reinterpret_cast<const int32_t*>(
      static_cast<const char*>(args.linear.weight) + layout.order_at());
  for (int64_t first = 0; first < rows; first += kMostReorderedRows) {
    const int64_t count = rows - first < kMostReorderedRows ? rows - first : kMostReorderedRows;
    QuantLinearArgs piece = piece_of(args, first, count);
    LinearArgs& linear = piece.linear;
    const Matrix ordered{args.reordered, count, layout.matrix.k, layout.matrix.stride()};
    reorder({.dtype = linear.dtype, .x = linear.x, .order = order, .out = ordered}, stream);
    linear.x = ordered;
    multiply(piece, stream);
  }
}

}  // namespace headrace::cuda
