#pragma once

// The shape contracts of backend.h, checked once per op for every CPU implementation. Each throws
// InternalError.

#include <span>

#include "backend/contract/backend.h"

namespace headrace {

void check_batch(const StepBatch& batch);
void check_embed(const StepBatch& batch, const PackedWeight& table, const TensorView& out);
void check_embed_part(const StepBatch& batch, const PackedWeight& table, int32_t first,
                      const TensorView& out);
void check_all_reduce(const TensorView& x);
void check_gather_columns(const TensorView& x, const TensorView& out);
void check_rope_table(const StepBatch& batch, const RopeSpec& spec, const TensorView& out);
/// A norm's weight: [n] of `act` or float32, or empty.
void check_norm_weight(const TensorView& weight, int64_t n, DType act = DType::kF32);
void check_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out);
void check_add_rms_norm(const TensorView& residual, const TensorView& delta,
                        const TensorView& weight, const TensorView& out);
void check_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out, DType act = DType::kF32);
void check_scale(const TensorView& x, float factor, const TensorView& out, DType act = DType::kF32);
void check_mul_sigmoid(const TensorView& gate, const TensorView& out, DType act = DType::kF32);
void check_cap_logits(const TensorView& logits, float factor, float cap);
/// `n`: columns of out.
void check_linear(const TensorView& x, const PackedWeight& weight, const TensorView& bias,
                  const TensorView& out, int64_t n);
void check_gate(const GateSpec& spec);
void check_gate_mul(const TensorView& gate_up, const GateSpec& spec, const TensorView& out,
                    DType act = DType::kF32);
/// The spec of one adapter's linear: sizes, columns, storage.
void check_lora_spec(const LoraSpec& spec);
void check_lora(const TensorView& x, std::span<const LoraGroup> groups, const TensorView& scratch,
                const TensorView& out);
void check_gather_rows(const TensorView& x, std::span<const int32_t> rows, const TensorView& out);
/// Throws Error(kUnsupported) naming what the CPU cannot run.
void require_cpu_needs(const BackendNeeds& needs, bool code_products = false);

}  // namespace headrace
