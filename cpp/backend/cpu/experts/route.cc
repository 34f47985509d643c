#include "backend/checks/op_checks_experts.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/experts/route_row.h"

namespace headrace {

void CpuBackend::route(TensorView x, const PackedWeight& gate, TensorView logit_bias,
                       TensorView correction, const RouterSpec& spec, TensorView ids,
                       TensorView weights) {
  check_route(x, gate, logit_bias, correction, spec, ids, weights);
  const int64_t row_bytes = int64_t{spec.num_experts} * static_cast<int64_t>(sizeof(float));
  const TensorView logits(grow(router_logits_, static_cast<size_t>(x.rows() * row_bytes)),
                          DType::kF32, {x.rows(), spec.num_experts});
  linear(x, gate, logit_bias, logits);
  const float* const added = correction.data == nullptr ? nullptr : correction.as<float>();
  // An exponential and a choice cost about as much as touching 64 bytes of cached memory ten times.
  for_rows(x.rows(), 160 * row_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      route_row(spec, logits.row<float>(row), added, ids.row<int32_t>(row),
                weights.row<float>(row));
    }
  });
}

}  // namespace headrace
