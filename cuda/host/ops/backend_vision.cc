#include <algorithm>

#include "backend/checks/op_checks_vision.h"
#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/elementwise/activate.h"
#include "cuda/kernels/vision/rotate.h"
#include "cuda/kernels/vision/scatter_rows.h"

namespace headrace::cuda {

namespace {

/// Lists of segments that are kept: an item's grids and windows, of two items.
constexpr size_t kMaxSegments = 4;

}  // namespace

void CudaBackend::write_rows(std::span<const float> values, TensorView to) {
  context_.enter();
  rounded_ahead_ = {};
  if (!reserving_) writer_.write_rows(values, to);
}

void CudaBackend::activate(Activation kind, TensorView x) {
  check_activate(kind, x, x.dtype);
  graphs_.note("activate", kind, x);
  launch(cuda::activate, {.dtype = x.dtype, .kind = kind, .x = matrix(x)});
}

void CudaBackend::rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) {
  check_rotate(x, table, heads, head_dim, x.dtype);
  graphs_.note("rotate", x, table, heads, head_dim);
  launch(cuda::rotate, {.dtype = x.dtype,
                        .x = matrix(x),
                        .table = static_cast<const float*>(table.data),
                        .table_stride = table.row_stride,
                        .heads = heads,
                        .head_dim = head_dim});
}

void CudaBackend::scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) {
  check_scatter_rows(x, rows, out, out.dtype);
  context_.enter();
  const int32_t* const device_rows = arena_.put(rows);
  arena_.flush();
  graphs_.note("scatter_rows", x, device_rows, out);
  launch(cuda::scatter_rows,
         {.dtype = out.dtype, .x = matrix(x), .rows = device_rows, .out = matrix(out)});
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
  check_segment_attention(args, args.q.dtype);
  const int64_t rows = args.q.rows();
  SegmentAttentionArgs out{.dtype = args.q.dtype,
                           .q = matrix(args.q),
                           .k = matrix(args.k),
                           .v = matrix(args.v),
                           .first = args.first,
                           .heads = args.heads,
                           .head_dim = args.head_dim,
                           .scale = args.scale,
                           .out = matrix(args.out)};
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
