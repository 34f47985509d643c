#pragma once

// More of op_checks.h: the contracts of states in caches, and of the ops of layers with a state.
// Each throws InternalError. `act`: the dtype of activations; `rows`: those of the step.

#include "backend/contract/backend.h"

namespace headrace {

/// What check_cache_layout() says of states.
void check_state_layout(const CacheLayout& layout);
/// A number of slots that a cache of that layout may have.
void check_num_slots(const CacheLayout& layout, int32_t num_slots);
/// What check_batch() says of states: slots that the cache has, none of them stored to by one
/// slice and used by another.
void check_batch_states(const StepBatch& batch);

void check_causal_conv(const StepBatch& batch, int64_t rows, const TensorView& x,
                       const TensorView& weight, const TensorView& bias, const ConvSpec& spec,
                       const KvCache& cache, int32_t layer, const TensorView& out,
                       DType act = DType::kF32);
void check_delta_prepare(const TensorView& qkv, const TensorView& b, const TensorView& a,
                         const TensorView& a_log, const TensorView& dt_bias, const DeltaSpec& spec,
                         const TensorView& gates, DType act = DType::kF32);
void check_delta_rule(const StepBatch& batch, int64_t rows, const TensorView& qkv,
                      const TensorView& gates, const DeltaSpec& spec, const KvCache& cache,
                      int32_t layer, const TensorView& out, DType act = DType::kF32);
void check_ssm_scan(const StepBatch& batch, int64_t rows, const ScanArgs& args,
                    const KvCache& cache, int32_t layer, const TensorView& out,
                    DType act = DType::kF32);
void check_gated_norm(const TensorView& x, const TensorView& gate, const TensorView& weight,
                      const GatedNormSpec& spec, const TensorView& out, DType act = DType::kF32);
void check_multiply(const TensorView& a, const TensorView& b, const TensorView& out,
                    DType act = DType::kF32);

}  // namespace headrace
