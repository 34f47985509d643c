#include <algorithm>

#include "backend/checks/op_checks.h"
#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/rows/embed.h"
#include "cuda/kernels/rows/gather_rows.h"
#include "cuda/kernels/rows/rope_table.h"

namespace headrace::cuda {

void CudaBackend::embed(const PackedWeight& table, TensorView out) {
  for (const int32_t id : step_.batch.token_ids) {
    HEADRACE_CHECK(id >= 0 && id < table.n(), "token ", id, " of ", table.n());
  }
  run_embed(table, 0, static_cast<int32_t>(table.n()), out);
}

void CudaBackend::run_embed(const PackedWeight& table, int32_t first, int32_t count,
                            const TensorView& out) {
  HEADRACE_CHECK(
      out.rows() == step_.rows && out.cols() == table.k() && out.dtype == table.storage(),
      out.rows(), " x ", out.cols());
  graphs_.note("embed", &table, out, step_.token_ids, step_.drawn_by, drawn_.data);
  EmbedArgs args{.dtype = out.dtype,
                 .token_ids = step_.token_ids,
                 .out = matrix(out),
                 .drawn_by = step_.drawn_by,
                 .drawn = static_cast<const int32_t*>(drawn_.data),
                 .first = first,
                 .count = count};
  if (embed_quantized(table, args)) return;
  const DeviceWeight& weight = device_weight(table);
  HEADRACE_CHECK(!weight.layout().gate_up);
  args.table = weight.rows();
  launch(cuda::embed, args);
}

const CudaBackend::RopeFrequencies& CudaBackend::frequencies(const RopeSpec& spec) {
  for (const RopeFrequencies& known : rope_frequencies_) {
    if (known.inv_freq == spec.inv_freq && known.long_inv_freq == spec.long_inv_freq &&
        known.axes == spec.axes) {
      return known;
    }
  }
  HEADRACE_CHECK(!graphs_.recording());
  std::vector<float> numbers = spec.inv_freq;
  numbers.insert(numbers.end(), spec.long_inv_freq.begin(), spec.long_inv_freq.end());
  const size_t bytes = numbers.size() * sizeof(float);
  RopeFrequencies added{spec.inv_freq, spec.long_inv_freq, spec.axes,
                        memory_.allocate(bytes + spec.axes.size())};
  upload(numbers.data(), added.device.data, bytes);
  if (!spec.axes.empty()) {
    auto* const behind = static_cast<std::byte*>(added.device.data) + bytes;
    upload(spec.axes.data(), behind, spec.axes.size());
    added.device_axes = reinterpret_cast<const uint8_t*>(behind);
  }
  rope_frequencies_.push_back(std::move(added));
  return rope_frequencies_.back();
}

void CudaBackend::rope_table(const RopeSpec& spec, TensorView out) {
  HEADRACE_CHECK(spec.rotary_dim > 0 && spec.rotary_dim % 2 == 0 &&
                     spec.inv_freq.size() == static_cast<size_t>(spec.rotary_dim / 2),
                 spec.rotary_dim, " ", spec.inv_freq.size());
  HEADRACE_CHECK(spec.axes.empty() ||
                     (spec.axes.size() == spec.inv_freq.size() && std::ranges::max(spec.axes) <= 2),
                 spec.axes.size());
  HEADRACE_CHECK(spec.long_inv_freq.empty() || spec.long_inv_freq.size() == spec.inv_freq.size(),
                 spec.long_inv_freq.size());
  HEADRACE_CHECK(
      out.rows() == step_.rows && out.cols() == spec.rotary_dim && out.dtype == DType::kF32,
      out.rows(), " x ", out.cols());
  const RopeFrequencies& known = frequencies(spec);
  const auto* const inv_freq = static_cast<const float*>(known.device.data);
  const float* const long_inv_freq =
      spec.long_inv_freq.empty() ? nullptr : inv_freq + spec.inv_freq.size();
  // Without positions on axes of their own, those of a row are its position.
  const uint8_t* const axes = step_.axis_positions == nullptr ? nullptr : known.device_axes;
  const int32_t* const axis_positions = axes == nullptr ? nullptr : step_.axis_positions;
  graphs_.note("rope_table", inv_freq, spec.rotary_dim, spec.attention_factor,
               spec.dynamic_original_max, spec.dynamic_base, spec.dynamic_factor, long_inv_freq,
               out, step_.positions, step_.rope_lens, axis_positions, axes);
  launch(cuda::rope_table, {.angles = {.inv_freq = inv_freq,
                                       .rotary_dim = spec.rotary_dim,
                                       .attention_factor = spec.attention_factor,
                                       .dynamic_original_max = spec.dynamic_original_max,
                                       .dynamic_base = spec.dynamic_base,
                                       .dynamic_factor = spec.dynamic_factor,
                                       .long_inv_freq = long_inv_freq},
                            .positions = step_.positions,
                            .rope_lens = step_.rope_lens,
                            .axis_positions = axis_positions,
                            .axes = axes,
                            .rows = out.rows(),
                            .out = static_cast<float*>(out.data),
                            .out_stride = out.row_stride});
}

void CudaBackend::run_linear(const TensorView& x, const PackedWeight& packed,
                             const TensorView& bias, const TensorView& out, Epilogue epilogue,
                             const GateSpec& gate) {
  HEADRACE_CHECK(x.dtype == packed.storage(), dtype_name(x.dtype), " x ",
                 dtype_name(packed.storage()));
  if (bias.data != nullptr) check_vector(bias, packed.n(), x.dtype);
  LinearArgs args{.dtype = x.dtype,
                  .x = matrix(x),
                  .bias = bias.data,
                  .gate_mul = epilogue == Epilogue::kGateMul,
                  .gate = gate,
                  .out_dtype = out.dtype,
                  .out = matrix(out),
                  .multiprocessors = context_.properties().multiprocessors,
                  .has_wgmma = has_wgmma_};
  if (epilogue == Epilogue::kAdd) args.residual = matrix(out);
  graphs_.note("linear", x, &packed, bias, out, epilogue, gate.activation, gate.limit, gate.alpha,
               gate.factor);
  if (run_quantized(packed, args)) return;
  const DeviceWeight& weight = device_weight(packed);
  args.weight = weight.data();
  args.layout = weight.layout();
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

void CudaBackend::linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                                  const GateSpec& spec, TensorView out) {
  check_gate(spec);
  run_linear(x, weight, bias, out, Epilogue::kGateMul, spec);
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

}  // namespace headrace::cuda
