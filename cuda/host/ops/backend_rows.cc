// Norms, and ops that look at one element at a time.

#include "backend/checks/op_checks.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/elementwise/add.h"
#include "cuda/kernels/elementwise/cap_logits.h"
#include "cuda/kernels/elementwise/gate_mul.h"
#include "cuda/kernels/elementwise/mul_sigmoid.h"
#include "cuda/kernels/elementwise/scale.h"
#include "cuda/kernels/rows/layer_norm.h"
#include "cuda/kernels/rows/rms_norm.h"

namespace headrace::cuda {

void CudaBackend::rms_norm(TensorView x, TensorView weight, float eps, TensorView out) {
  check_same(x, out);
  check_norm_weight(weight, x.cols(), x.dtype);
  graphs_.note("rms_norm", x, weight, eps, out);
  run_norm({.dtype = x.dtype,
            .x = matrix(x),
            .weight = weight.data,
            .eps = eps,
            .out = matrix(out),
            .float_weight = weight.dtype == DType::kF32});
}

void CudaBackend::add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                               TensorView out) {
  check_same(residual, delta);
  check_same(residual, out);
  check_norm_weight(weight, residual.cols(), residual.dtype);
  graphs_.note("add_rms_norm", residual, delta, weight, eps, out);
  run_norm({.dtype = residual.dtype,
            .x = matrix(residual),
            .delta = matrix(delta),
            .weight = weight.data,
            .eps = eps,
            .out = matrix(out),
            .float_weight = weight.dtype == DType::kF32});
}

void CudaBackend::run_norm(RmsNormArgs args) {
  round_ahead(args);
  launch(cuda::rms_norm, args);
  note_rounded(args);
}

void CudaBackend::layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                             TensorView out) {
  check_layer_norm(x, weight, bias, out, x.dtype);
  expected_.reset();  // it leaves no codes: the hint is not for a later norm
  graphs_.note("layer_norm", x, weight, bias, eps, out);
  launch(cuda::layer_norm, {.dtype = x.dtype,
                            .x = matrix(x),
                            .weight = weight.data,
                            .bias = bias.data,
                            .eps = eps,
                            .out = matrix(out)});
}

void CudaBackend::add(TensorView x, TensorView out) {
  check_same(x, out);
  graphs_.note("add", x, out);
  launch(cuda::add, {.dtype = out.dtype, .x = matrix(x), .out = matrix(out)});
}

void CudaBackend::gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) {
  check_gate_mul(gate_up, spec, out, out.dtype);
  graphs_.note("gate_mul", gate_up, spec.activation, spec.limit, spec.alpha, spec.factor, out);
  launch(cuda::gate_mul,
         {.dtype = out.dtype, .gate_up = matrix(gate_up), .out = matrix(out), .gate = spec});
}

void CudaBackend::scale(TensorView x, float factor, TensorView out) {
  check_scale(x, factor, out, out.dtype);
  graphs_.note("scale", x, factor, out);
  launch(cuda::scale, {.dtype = out.dtype, .x = matrix(x), .factor = factor, .out = matrix(out)});
}

void CudaBackend::mul_sigmoid(TensorView gate, TensorView out) {
  check_mul_sigmoid(gate, out, out.dtype);
  graphs_.note("mul_sigmoid", gate, out);
  launch(cuda::mul_sigmoid, {.dtype = out.dtype, .gate = matrix(gate), .out = matrix(out)});
}

void CudaBackend::cap_logits(TensorView logits, float factor, float cap) {
  check_cap_logits(logits, factor, cap);
  if (cap == 0.0f && factor == 1.0f) return;
  graphs_.note("cap_logits", logits, factor, cap);
  launch(cuda::cap_logits, {.logits = matrix(logits), .factor = factor, .cap = cap});
}

}  // namespace headrace::cuda
