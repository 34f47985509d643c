#include "backend/checks/op_checks.h"

#include <algorithm>
#include <cmath>

#include "backend/checks/op_checks_attention.h"
#include "backend/checks/op_checks_state.h"
#include "backend/checks/tensor_checks.h"
#include "backend/host/weight_source.h"
#include "base/check.h"

namespace headrace {

namespace {

void check_same_shape(const TensorView& a, const TensorView& b) {
  HEADRACE_CHECK(a.rows() == b.rows() && a.cols() == b.cols(), a.rows(), " x ", a.cols(), " and ",
                 b.rows(), " x ", b.cols());
}

bool storable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

void check_batch(const StepBatch& batch) {
  const size_t rows = batch.token_ids.size();
  HEADRACE_CHECK(batch.positions.size() == rows && batch.rope_lens.size() == rows, rows);
  int64_t next_row = 0;
  for (const SeqSlice& seq : batch.seqs) {
    HEADRACE_CHECK(seq.first_row == next_row && seq.num_rows >= 1 && seq.start_pos >= 0, next_row);
    HEADRACE_CHECK(seq.adapter >= kNoAdapter, seq.adapter);
    next_row += seq.num_rows;
  }
  HEADRACE_CHECK(next_row == static_cast<int64_t>(rows), next_row, " of ", rows);
  HEADRACE_CHECK(batch.rope_positions.empty() || batch.rope_positions.size() == 3 * rows,
                 batch.rope_positions.size());
  HEADRACE_CHECK(batch.modalities.empty() || batch.modalities.size() == rows,
                 batch.modalities.size());
  for (const Modality modality : batch.modalities) {
    HEADRACE_CHECK(modality == Modality::kText || modality == Modality::kVision,
                   static_cast<int>(modality));
  }
  check_batch_states(batch);
}

void check_embed(const StepBatch& batch, const PackedWeight& table, const TensorView& out) {
  check_matrix(out);
  HEADRACE_CHECK(
      out.rows() == static_cast<int64_t>(batch.token_ids.size()) && out.cols() == table.k(),
      out.rows(), " x ", out.cols());
  for (const int32_t id : batch.token_ids) {
    HEADRACE_CHECK(id >= 0 && id < table.n(), "token ", id, " of ", table.n());
  }
}

void check_embed_part(const StepBatch& batch, const PackedWeight& table, int32_t first,
                      const TensorView& out) {
  check_matrix(out);
  HEADRACE_CHECK(
      out.rows() == static_cast<int64_t>(batch.token_ids.size()) && out.cols() == table.k(),
      out.rows(), " x ", out.cols());
  HEADRACE_CHECK(first >= 0, first);
  for (const int32_t id : batch.token_ids) HEADRACE_CHECK(id >= 0, "token ", id);
}

void check_all_reduce(const TensorView& x) { check_matrix(x); }

void check_gather_columns(const TensorView& x, const TensorView& out) {
  check_matrix(x);
  HEADRACE_CHECK(out.rows() == x.rows() && out.cols() >= x.cols() && out.dtype == x.dtype, x.rows(),
                 " x ", x.cols(), " to ", out.rows(), " x ", out.cols());
  if (out.data != nullptr) check_matrix(out);
}

void check_rope_table(const StepBatch& batch, const RopeSpec& spec, const TensorView& out) {
  check_matrix(out);
  HEADRACE_CHECK(spec.rotary_dim > 0 && spec.rotary_dim % 2 == 0 &&
                     spec.inv_freq.size() == static_cast<size_t>(spec.rotary_dim / 2),
                 spec.rotary_dim, " ", spec.inv_freq.size());
  HEADRACE_CHECK(spec.axes.empty() || spec.axes.size() == spec.inv_freq.size(), spec.axes.size());
  HEADRACE_CHECK(spec.long_inv_freq.empty() || (spec.dynamic_original_max > 0 &&
                                                spec.long_inv_freq.size() == spec.inv_freq.size()),
                 spec.long_inv_freq.size());
  HEADRACE_CHECK(std::all_of(spec.axes.begin(), spec.axes.end(), [](uint8_t a) { return a < 3; }));
  HEADRACE_CHECK(
      out.rows() == static_cast<int64_t>(batch.token_ids.size()) && out.cols() == spec.rotary_dim,
      out.rows(), " x ", out.cols());
}

void check_norm_weight(const TensorView& weight, int64_t n, DType act) {
  if (weight.data == nullptr) return;
  check_vector(weight, n, weight.dtype == DType::kF32 ? DType::kF32 : act);
}

void check_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out) {
  check_matrix(x);
  check_matrix(out);
  check_same_shape(x, out);
  check_norm_weight(weight, x.cols());
}

void check_add_rms_norm(const TensorView& residual, const TensorView& delta,
                        const TensorView& weight, const TensorView& out) {
  check_rms_norm(residual, weight, out);
  check_matrix(delta);
  check_same_shape(residual, delta);
  HEADRACE_CHECK(out.data != residual.data || out.rows() == 0);
}

void check_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out, DType act) {
  check_matrix(x, x.shape[0], x.shape[1], act);
  check_matrix(out, x.rows(), x.cols(), act);
  check_vector(weight, x.cols(), act);
  if (bias.data != nullptr) check_vector(bias, x.cols(), act);
}

void check_scale(const TensorView& x, float factor, const TensorView& out, DType act) {
  check_matrix(out, out.shape[0], out.shape[1], act);
  check_matrix(x, out.rows(), out.cols(), act);
  HEADRACE_CHECK(std::isfinite(factor), factor);
}

void check_mul_sigmoid(const TensorView& gate, const TensorView& out, DType act) {
  check_matrix(out, out.shape[0], out.shape[1], act);
  check_matrix(gate, out.rows(), out.cols(), act);
}

void check_cap_logits(const TensorView& logits, float factor, float cap) {
  check_matrix(logits);
  HEADRACE_CHECK(std::isfinite(factor) && factor != 0.0f && std::isfinite(cap) && cap >= 0.0f,
                 factor, " ", cap);
}

void check_linear(const TensorView& x, const PackedWeight& weight, const TensorView& bias,
                  const TensorView& out, int64_t n) {
  check_matrix(x);
  check_matrix(out);
  HEADRACE_CHECK(weight.experts() == 1, "a weight of ", weight.experts(), " experts");
  HEADRACE_CHECK(x.cols() == weight.k() && x.rows() == out.rows() && out.cols() == n, x.rows(),
                 " x ", x.cols(), " . ", weight.k(), " x ", weight.n(), " to ", out.rows(), " x ",
                 out.cols());
  if (bias.data != nullptr) check_vector(bias, weight.n());
}

void check_gate(const GateSpec& spec) {
  const auto kind = static_cast<int>(spec.activation);
  HEADRACE_CHECK(spec.activation <= Activation::kGeluTanh, kind);
  HEADRACE_CHECK(std::isfinite(spec.limit) && spec.limit >= 0.0f && std::isfinite(spec.alpha),
                 spec.limit, " ", spec.alpha);
  HEADRACE_CHECK(std::isfinite(spec.factor) && (spec.limit == 0.0f || spec.factor == 1.0f),
                 spec.factor);
  HEADRACE_CHECK(
      (spec.limit == 0.0f && spec.factor == 1.0f) || spec.activation == Activation::kSilu, kind);
}

void check_gate_mul(const TensorView& gate_up, const GateSpec& spec, const TensorView& out,
                    DType act) {
  check_gate(spec);
  check_matrix(out, out.shape[0], out.shape[1], act);
  check_matrix(gate_up, out.rows(), 2 * out.cols(), act);
}

void check_lora_spec(const LoraSpec& spec) {
  HEADRACE_CHECK(!spec.parts.empty() && storable(spec.storage), dtype_name(spec.storage));
  for (const LoraPart& part : spec.parts) {
    check_weight({{part.a}, spec.storage});
    check_weight({{part.b}, spec.storage});
    HEADRACE_CHECK(part.a.k == spec.k && part.b.k == part.a.n, part.a.k, ", ", part.b.k, " and ",
                   part.a.n);
    HEADRACE_CHECK(part.column >= 0 && part.b.n <= spec.n - part.column, part.column, " + ",
                   part.b.n, " of ", spec.n);
  }
}

void check_lora(const TensorView& x, std::span<const LoraGroup> groups, const TensorView& scratch,
                const TensorView& out) {
  check_matrix(x);
  check_matrix(out);
  check_matrix(scratch);
  int64_t rows = 0;
  for (const LoraGroup& group : groups) {
    HEADRACE_CHECK(group.lora != nullptr && group.lora->k() == x.cols() &&
                       group.lora->n() == out.cols() &&
                       group.lora->scratch_columns() <= scratch.cols(),
                   x.cols(), " to ", out.cols());
    for (const int32_t row : group.rows) {
      HEADRACE_CHECK(row >= 0 && row < x.rows() && row < out.rows(), row, " of ", out.rows());
    }
    rows += static_cast<int64_t>(group.rows.size());
  }
  HEADRACE_CHECK(rows <= scratch.rows(), rows, " of ", scratch.rows());
}

void check_gather_rows(const TensorView& x, std::span<const int32_t> rows, const TensorView& out) {
  check_matrix(x);
  check_matrix(out);
  HEADRACE_CHECK(out.rows() == static_cast<int64_t>(rows.size()) && out.cols() == x.cols(),
                 out.rows(), " x ", out.cols());
  for (const int32_t row : rows) HEADRACE_CHECK(row >= 0 && row < x.rows(), row, " of ", x.rows());
}

void require_cpu_needs(const BackendNeeds& needs, bool code_products) {
  if (needs.quantization.ends_with("fp8") && !code_products) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend has no products of FP8, as quantization ",
                needs.quantization, " asks for: use wint8, or device cuda.");
  }
  if (!storable(needs.storage)) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend keeps weights as float32, bfloat16 or ",
                "float16, not as ", dtype_name(needs.storage));
  }
  if (!storable_kv(needs.kv_dtype)) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend keeps keys and values as float32, ",
                "bfloat16, float16, int8 or uint4, not as ", dtype_name(needs.kv_dtype));
  }
  const int32_t largest = needs.latent ? kLargestLatent : kLargestHead;
  if (needs.head_dim < 16 || needs.head_dim > largest || needs.head_dim % 16 != 0) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend runs head_dim 16, 32, ..., ", largest,
                ", not ", needs.head_dim);
  }
  if (needs.experts > kMaxExperts) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend runs at most ", kMaxExperts,
                " experts a layer, not ", needs.experts);
  }
  if (needs.block_size < 16 || needs.block_size % 16 != 0) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend needs a block_size that is a multiple ",
                "of 16, not ", needs.block_size);
  }
}

}  // namespace headrace
