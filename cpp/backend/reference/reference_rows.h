#pragma once

// The reference's ops on rows: norms, gates, factors and caps, in plain loops with double sums.

#include "backend/contract/activation.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// One row of n. `weight` may be empty.
void reference_rms_norm_row(const float* x, const TensorView& weight, float eps, int64_t n,
                            float* out);
/// `bias` may be empty.
void reference_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                          float eps, const TensorView& out);
/// activation(x).
double reference_activation(Activation kind, double x);
/// What opens the gate, rounded.
float reference_gate(const GateSpec& spec, float gate, float up);
void reference_scale(const TensorView& x, float factor, const TensorView& out);
void reference_mul_sigmoid(const TensorView& gate, const TensorView& out);
void reference_cap_logits(const TensorView& logits, float factor, float cap);

}  // namespace headrace
