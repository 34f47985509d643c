#include <algorithm>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/kernels/vision/activate.h"
#include "cuda/kernels/vision/add.h"
#include "cuda/kernels/vision/layer_norm.h"
#include "cuda/kernels/vision/rotate.h"
#include "cuda/kernels/vision/scatter_rows.h"

namespace headrace::cuda {

namespace {

/// Lists of segments that are kept: an item's grids and windows, of two items.
constexpr size_t kMaxSegments = 4;

Matrix matrix(const TensorView& x, int64_t rows, int64_t cols, DType dtype) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.rows() == rows && x.cols() == cols && x.dtype == dtype &&
                     x.row_stride >= cols && (x.data != nullptr || rows == 0),
                 x.rows(), " x ", x.cols(), ", not ", rows, " x ", cols);
  return {x.data, rows, cols, x.row_stride};
}

const void* vector(const TensorView& x, int64_t size, DType dtype) {
  HEADRACE_CHECK(x.data != nullptr && x.dtype == dtype && x.shape.elements() == size,
                 x.shape.elements(), " and ", size);
  return x.data;
}

}  // namespace

void CudaBackend::write_rows(std::span<const float> values, TensorView to) {
  context_.enter();
  if (!reserving_) writer_.write_rows(values, to);
}

void CudaBackend::add(TensorView x, TensorView out) {
  const Matrix to = matrix(out, out.shape[0], out.shape[1], out.dtype);
  const Matrix from = matrix(x, to.rows, to.cols, out.dtype);
  graphs_.note("add", x, out);
  launch(cuda::add, {.dtype = out.dtype, .x = from, .out = to});
}

void CudaBackend::layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                             TensorView out) {
  const Matrix from = matrix(x, x.shape[0], x.shape[1], x.dtype);
  graphs_.note("layer_norm", x, weight, bias, eps, out);
  launch(cuda::layer_norm, {.dtype = x.dtype,
                            .x = from,
                            .weight = vector(weight, from.cols, x.dtype),
                            .bias = vector(bias, from.cols, x.dtype),
                            .eps = eps,
                            .out = matrix(out, from.rows, from.cols, x.dtype)});
}

void CudaBackend::activate(Activation kind, TensorView x) {
  HEADRACE_CHECK(kind <= Activation::kQuickGelu, static_cast<int>(kind));
  graphs_.note("activate", kind, x);
  launch(cuda::activate,
         {.dtype = x.dtype, .kind = kind, .x = matrix(x, x.shape[0], x.shape[1], x.dtype)});
}

void CudaBackend::rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) {
  HEADRACE_CHECK(heads >= 1 && head_dim >= 2 && head_dim % 2 == 0, heads, " of ", head_dim);
  const Matrix angles = matrix(table, x.shape[0], head_dim, DType::kF32);
  graphs_.note("rotate", x, table, heads, head_dim);
  launch(cuda::rotate, {.dtype = x.dtype,
                        .x = matrix(x, angles.rows, int64_t{heads} * head_dim, x.dtype),
                        .table = static_cast<const float*>(angles.data),
                        .table_stride = angles.stride,
                        .heads = heads,
                        .head_dim = head_dim});
}

void CudaBackend::scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) {
  const Matrix to = matrix(out, out.shape[0], out.shape[1], out.dtype);
  const Matrix from = matrix(x, static_cast<int64_t>(rows.size()), to.cols, out.dtype);
  std::vector<bool> taken(static_cast<size_t>(to.rows));
  for (const int32_t row : rows) {
    HEADRACE_CHECK(row >= 0 && row < to.rows, row, " of ", to.rows);
    HEADRACE_CHECK(!taken[static_cast<size_t>(row)], "row ", row, " twice");
    taken[static_cast<size_t>(row)] = true;
  }
  context_.enter();
  const int32_t* const device_rows = arena_.put(rows);
  arena_.flush();
  graphs_.note("scatter_rows", x, device_rows, out);
  launch(cuda::scatter_rows, {.dtype = out.dtype, .x = from, .rows = device_rows, .out = to});
}

const CudaBackend::Segments& CudaBackend::segments(std::span<const int32_t> ends) {
  const auto known = std::ranges::find_if(
      segments_, [&](const Segments& segments) { return std::ranges::equal(segments.ends, ends); });
  if (known != segments_.end()) {
    known->last_use = ++segment_uses_;
    return *known;
  }
  HEADRACE_CHECK(!graphs_.recording());
  Segments added{{ends.begin(), ends.end()}, segment_items(ends), {}, ++segment_uses_};
  const size_t bytes = added.items.size() * sizeof(SegmentItem);
  added.device = allocate(bytes);
  writer_.write(added.items.data(), bytes, added.device.data);
  if (segments_.size() < kMaxSegments) {
    segments_.push_back(std::move(added));
    return segments_.back();
  }
  const auto oldest = std::ranges::min_element(segments_, {}, &Segments::last_use);
  *oldest = std::move(added);
  return *oldest;
}

void CudaBackend::segment_attention(const SegmentAttention& args) {
  const DType dtype = args.q.dtype;
  HEADRACE_CHECK(args.heads >= 1 && args.head_dim >= kSegmentHeadUnit &&
                     args.head_dim <= kMaxSegmentHead && args.head_dim % kSegmentHeadUnit == 0,
                 args.heads, " of ", args.head_dim);
  HEADRACE_CHECK(args.products == DType::kF32 || args.products == DType::kBF16,
                 dtype_name(args.products));
  const int64_t cols = int64_t{args.heads} * args.head_dim, total = args.k.shape[0];
  const int64_t rows = args.q.shape[0];
  HEADRACE_CHECK(args.first >= 0 && rows <= total - args.first, args.first, " + ", rows, " of ",
                 total);
  int64_t end = 0;
  for (const int32_t next : args.segment_ends) {
    HEADRACE_CHECK(next > end, next, " behind ", end);
    end = next;
  }
  HEADRACE_CHECK(end == total, end, " of ", total);
  SegmentAttentionArgs out{.dtype = dtype,
                           .q = matrix(args.q, rows, cols, dtype),
                           .k = matrix(args.k, total, cols, dtype),
                           .v = matrix(args.v, total, cols, dtype),
                           .first = args.first,
                           .heads = args.heads,
                           .head_dim = args.head_dim,
                           .scale = args.scale,
                           .out = matrix(args.out, rows, cols, dtype)};
  if (rows == 0 || reserving_) return;
  context_.enter();
  const Segments& known = segments(args.segment_ends);
  // Those with rows of q.
  const auto first = std::ranges::upper_bound(known.items, args.first, {}, &SegmentItem::end_row);
  const auto behind =
      std::ranges::lower_bound(known.items, args.first + rows, {}, &SegmentItem::row);
  out.items = static_cast<const SegmentItem*>(known.device.data) + (first - known.items.begin());
  out.num_items = static_cast<int32_t>(behind - first);
  graphs_.note("segment_attention", args.q, args.k, args.v, args.first, args.heads, args.head_dim,
               args.scale, args.out, out.items, out.num_items);
  launch(cuda::segment_attention, out);
}

}  // namespace headrace::cuda
