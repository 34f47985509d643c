#include <algorithm>

#include "backend/checks/op_checks_vision.h"
#include "backend/cpu/cpu_backend_impl.h"

namespace headrace {

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

void CpuBackend::activate(Activation kind, TensorView x) {
  check_activate(kind, x);
  const VisionRowKernels& kernels = *isa_->vision_rows;
  const auto activate = kind == Activation::kSilu       ? kernels.silu
                        : kind == Activation::kGeluErf  ? kernels.gelu_erf
                        : kind == Activation::kGeluTanh ? kernels.gelu_tanh
                        : kind == Activation::kRelu2    ? kernels.relu2
                        : kind == Activation::kTanh     ? kernels.tanh
                                                        : kernels.quick_gelu;
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) activate(x.row<float>(i), x.cols());
  });
}

void CpuBackend::rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) {
  check_rotate(x, table, heads, head_dim);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->vision_rows->rotate(x.row<float>(i), table.row<float>(i), heads, head_dim / 2);
    }
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
