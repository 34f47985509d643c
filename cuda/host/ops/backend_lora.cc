#include <algorithm>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/kernels/rows/lora.h"

namespace headrace::cuda {

void CudaBackend::lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
                       TensorView out) {
  std::vector<LoraPartArgs> parts;
  std::vector<LoraRowArgs> rows;
  LoraArgs args{.dtype = x.dtype,
                .storage = storage_,
                .x = {x.data, x.rows(), x.cols(), x.row_stride},
                .scratch = {scratch.data, scratch.rows(), scratch.cols(), scratch.row_stride},
                .out = {out.data, out.rows(), out.cols(), out.row_stride}};
  for (const LoraGroup& group : groups) {
    const auto* adapter = dynamic_cast<const DeviceLora*>(group.lora);
    HEADRACE_CHECK(adapter != nullptr && adapter->storage() == storage_ &&
                       adapter->k() == x.cols() && adapter->n() == out.cols() &&
                       adapter->scratch_columns() <= scratch.cols(),
                   x.cols(), " to ", out.cols());
    const auto first = static_cast<int32_t>(parts.size());
    const auto count = static_cast<int32_t>(adapter->parts().size());
    for (const DeviceLora::Part& part : adapter->parts()) {
      parts.push_back(
          {part.a, part.b, part.rank, part.cols, part.column, part.scratch_column, part.scale});
      args.max_rank = std::max(args.max_rank, part.rank);
      args.max_cols = std::max(args.max_cols, part.cols);
    }
    args.max_parts = std::max(args.max_parts, count);
    for (const int32_t row : group.rows) {
      HEADRACE_CHECK(row >= 0 && row < x.rows() && row < out.rows(), row, " of ", out.rows());
      rows.push_back({row, first, count});
    }
  }
  HEADRACE_CHECK(static_cast<int64_t>(rows.size()) <= scratch.rows(), rows.size());
  if (rows.empty()) return;
  args.parts = arena_.put(std::span<const LoraPartArgs>(parts));
  args.rows = arena_.put(std::span<const LoraRowArgs>(rows));
  args.num_rows = static_cast<int64_t>(rows.size());
  arena_.flush();
  launch(cuda::lora, args);
}

}  // namespace headrace::cuda
