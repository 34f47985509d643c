#include <algorithm>

#include "backend/contract/op_checks_vision.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/reference/reference_vision.h"

namespace headrace {

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

void CpuBackend::layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                            TensorView out) {
  check_layer_norm(x, weight, bias, out);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    reference_layer_norm(x.rows_from(begin, end - begin), weight, bias, eps,
                         out.rows_from(begin, end - begin));
  });
}

void CpuBackend::activate(Activation kind, TensorView x) {
  check_activate(kind, x);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    reference_activate(kind, x.rows_from(begin, end - begin));
  });
}

void CpuBackend::rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) {
  check_rotate(x, table, heads, head_dim);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    reference_rotate(x.rows_from(begin, end - begin), table.rows_from(begin, end - begin), heads,
                     head_dim);
  });
}

void CpuBackend::scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) {
  check_scatter_rows(x, rows, out);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x.row<float>(i), x.cols(), out.row<float>(rows[static_cast<size_t>(i)]));
    }
  });
}

}  // namespace headrace
