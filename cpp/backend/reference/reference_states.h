#pragma once

// The oracle's ops of layers with a state: plain loops, sums in double. A matrix lies as
// [key_dim][value_dim], rounded to float32 behind each row of the step.

#include "backend/contract/backend.h"

namespace headrace {

// See the ops in backend.h. `batch` is the current step's.

void reference_causal_conv(const StepBatch& batch, TensorView x, TensorView weight, TensorView bias,
                           const ConvSpec& spec, KvCache& cache, int32_t layer, TensorView out);
void reference_delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                             TensorView dt_bias, const DeltaSpec& spec, TensorView gates);
void reference_delta_rule(const StepBatch& batch, TensorView qkv, TensorView gates,
                          const DeltaSpec& spec, KvCache& cache, int32_t layer, TensorView out);
void reference_ssm_scan(const StepBatch& batch, const ScanArgs& args, KvCache& cache, int32_t layer,
                        TensorView out);
void reference_gated_norm(TensorView x, TensorView gate, TensorView weight,
                          const GatedNormSpec& spec, TensorView out);
void reference_multiply(TensorView a, TensorView b, TensorView out);

}  // namespace headrace
