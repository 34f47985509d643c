#include <algorithm>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/op_views.h"
#include "cuda/kernels/embed.h"
#include "cuda/kernels/gather_rows.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/rms_norm.h"
#include "cuda/kernels/rope_table.h"
#include "cuda/kernels/silu_mul.h"

namespace headrace::cuda {

void CudaBackend::embed(const PackedWeight& table, TensorView out) {
  const DeviceWeight& weight = device_weight(table);
  HEADRACE_CHECK(out.rows() == step_.rows && out.cols() == weight.k() &&
                     out.dtype == weight.storage() && !weight.layout().gate_up,
                 out.rows(), " x ", out.cols());
  for (const int32_t id : step_.batch.token_ids) {
    HEADRACE_CHECK(id >= 0 && id < weight.n(), "token ", id, " of ", weight.n());
  }
  graphs_.note("embed", &table, out, step_.token_ids, step_.drawn_by, drawn_.data);
  launch(cuda::embed, {.dtype = out.dtype,
                       .table = weight.rows(),
                       .token_ids = step_.token_ids,
                       .out = matrix(out),
                       .drawn_by = step_.drawn_by,
                       .drawn = static_cast<const int32_t*>(drawn_.data)});
}

const float* CudaBackend::frequencies(const RopeSpec& spec) {
  for (const RopeFrequencies& known : rope_frequencies_) {
    if (known.inv_freq == spec.inv_freq) return static_cast<const float*>(known.device.data);
  }
  HEADRACE_CHECK(!graphs_.recording());
  const size_t bytes = spec.inv_freq.size() * sizeof(float);
  RopeFrequencies added{spec.inv_freq, memory_.allocate(bytes)};
  upload(spec.inv_freq.data(), added.device.data, bytes);
  rope_frequencies_.push_back(std::move(added));
  return static_cast<const float*>(rope_frequencies_.back().device.data);
}

void CudaBackend::rope_table(const RopeSpec& spec, TensorView out) {
  HEADRACE_CHECK(spec.rotary_dim > 0 && spec.rotary_dim % 2 == 0 &&
                     spec.inv_freq.size() == static_cast<size_t>(spec.rotary_dim / 2),
                 spec.rotary_dim, " ", spec.inv_freq.size());
  HEADRACE_CHECK(
      out.rows() == step_.rows && out.cols() == spec.rotary_dim && out.dtype == DType::kF32,
      out.rows(), " x ", out.cols());
  graphs_.note("rope_table", frequencies(spec), spec.rotary_dim, spec.attention_factor,
               spec.dynamic_original_max, spec.dynamic_base, spec.dynamic_factor, out,
               step_.positions, step_.rope_lens);
  launch(cuda::rope_table, {.angles = {.inv_freq = frequencies(spec),
                                       .rotary_dim = spec.rotary_dim,
                                       .attention_factor = spec.attention_factor,
                                       .dynamic_original_max = spec.dynamic_original_max,
                                       .dynamic_base = spec.dynamic_base,
                                       .dynamic_factor = spec.dynamic_factor},
                            .positions = step_.positions,
                            .rope_lens = step_.rope_lens,
                            .rows = out.rows(),
                            .out = static_cast<float*>(out.data),
                            .out_stride = out.row_stride});
}

void CudaBackend::rms_norm(TensorView x, TensorView weight, float eps, TensorView out) {
  check_same(x, out);
  check_vector(weight, x.cols(), x.dtype);
  graphs_.note("rms_norm", x, weight, eps, out);
  launch(cuda::rms_norm,
         {.dtype = x.dtype, .x = matrix(x), .weight = weight.data, .eps = eps, .out = matrix(out)});
}

void CudaBackend::add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                               TensorView out) {
  check_same(residual, delta);
  check_same(residual, out);
  check_vector(weight, residual.cols(), residual.dtype);
  graphs_.note("add_rms_norm", residual, delta, weight, eps, out);
  launch(cuda::rms_norm, {.dtype = residual.dtype,
                          .x = matrix(residual),
                          .delta = matrix(delta),
                          .weight = weight.data,
                          .eps = eps,
                          .out = matrix(out)});
}

void CudaBackend::run_linear(const TensorView& x, const PackedWeight& packed,
                             const TensorView& bias, const TensorView& out, Epilogue epilogue) {
  const DeviceWeight& weight = device_weight(packed);
  HEADRACE_CHECK(x.dtype == weight.storage(), dtype_name(x.dtype), " x ",
                 dtype_name(weight.storage()));
  if (bias.data != nullptr) check_vector(bias, weight.n(), x.dtype);
  LinearArgs args{.dtype = x.dtype,
                  .x = matrix(x),
                  .weight = weight.data(),
                  .layout = weight.layout(),
                  .bias = bias.data,
                  .silu_mul = epilogue == Epilogue::kSiluMul,
                  .out_dtype = out.dtype,
                  .out = matrix(out),
                  .multiprocessors = context_.properties().multiprocessors,
                  .has_wgmma = has_wgmma_};
  if (epilogue == Epilogue::kAdd) args.residual = matrix(out);
  graphs_.note("linear", x, &packed, bias, out, epilogue);
  launch(cuda::linear, args);
}

void CudaBackend::linear(TensorView x, const PackedWeight& weight, TensorView bias,
                         TensorView out) {
  run_linear(x, weight, bias, out, Epilogue::kPlain);
}

void CudaBackend::linear_add_rms_norm(const LinearAddNorm& args) {
  run_linear(args.x, args.weight, args.bias, args.residual, Epilogue::kAdd);
  rms_norm(args.residual, args.norm, args.eps, args.out);
}

void CudaBackend::linear_silu_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                                  TensorView out) {
  run_linear(x, weight, bias, out, Epilogue::kSiluMul);
}

void CudaBackend::silu_mul(TensorView gate_up, TensorView out) {
  HEADRACE_CHECK(gate_up.rows() == out.rows() && gate_up.cols() == 2 * out.cols() &&
                     gate_up.dtype == out.dtype,
                 gate_up.rows(), " x ", gate_up.cols());
  graphs_.note("silu_mul", gate_up, out);
  launch(cuda::silu_mul, {.dtype = out.dtype, .gate_up = matrix(gate_up), .out = matrix(out)});
}

void CudaBackend::gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) {
  HEADRACE_CHECK(out.rows() == static_cast<int64_t>(rows.size()) && out.cols() == x.cols() &&
                     out.dtype == x.dtype,
                 out.rows(), " x ", out.cols());
  for (const int32_t row : rows) HEADRACE_CHECK(row >= 0 && row < x.rows(), row, " of ", x.rows());
  const int32_t* const device_rows = arena_.put(rows);
  arena_.flush();
  graphs_.note("gather_rows", x, device_rows, out);
  launch(cuda::gather_rows,
         {.dtype = x.dtype, .x = matrix(x), .rows = device_rows, .out = matrix(out)});
}

void CudaBackend::layer_norm(TensorView, TensorView, TensorView, float, TensorView) {
  HEADRACE_CHECK(false, "see require()");
}

void CudaBackend::activate(Activation, TensorView) { HEADRACE_CHECK(false, "see require()"); }

void CudaBackend::rotate(TensorView, TensorView, int32_t, int32_t) {
  HEADRACE_CHECK(false, "see require()");
}

void CudaBackend::scatter_rows(TensorView, std::span<const int32_t>, TensorView) {
  HEADRACE_CHECK(false, "see require()");
}

void CudaBackend::segment_attention(const SegmentAttention&) {
  HEADRACE_CHECK(false, "see require()");
}

}  // namespace headrace::cuda
