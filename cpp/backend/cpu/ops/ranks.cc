#include <utility>

#include "backend/checks/op_checks.h"
#include "backend/cpu/cpu_backend_impl.h"

namespace headrace {

void CpuBackend::join(std::shared_ptr<RankGroup> group, int32_t rank) {
  rank_.join(std::move(group), rank);
}

void CpuBackend::embed_part(const PackedWeight& table, int32_t first, TensorView out) {
  check_embed_part(step_, table, first, out);
  read_tokens(table, first, out);
}

void CpuBackend::all_reduce(TensorView x) {
  check_all_reduce(x);
  if (reserving_) return;
  rank_.all_reduce(x, isa_->rows->add, [&](int64_t count, const auto& part) {
    for_rows(count, 2 * sizeof(float), part);
  });
}

void CpuBackend::gather_columns(TensorView x, TensorView out) {
  check_gather_columns(x, out);
  if (reserving_) return;
  rank_.gather_columns(x, out, [&](int64_t count, const auto& part) {
    for_rows(count, 2 * x.cols() * static_cast<int64_t>(sizeof(float)), part);
  });
}

}  // namespace headrace
