#include <algorithm>

#include "backend/checks/op_checks_experts.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/host/weights/quant_weight.h"
#include "cuda/kernels/experts/add_gated.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/route/route.h"

namespace headrace::cuda {

namespace {

void check_choice(const TensorView& x, const TensorView& ids, const TensorView& weights) {
  HEADRACE_CHECK(ids.rows() == x.rows() && ids.dtype == DType::kI32, ids.rows(), " of ", x.rows());
  HEADRACE_CHECK(
      weights.rows() == x.rows() && weights.cols() == ids.cols() && weights.dtype == DType::kF32,
      weights.rows(), " x ", weights.cols());
  HEADRACE_CHECK(ids.row_stride >= ids.cols() && weights.row_stride >= ids.cols(), ids.row_stride,
                 " ", weights.row_stride);
}

/// Experts' matrices, quantized or not.
struct ExpertWeight {
  WeightLayout layout;
  QuantFormat quant;  ///< bits 0: it isn't
};

ExpertWeight expert_weight(const PackedWeight& weight, DType dtype) {
  HEADRACE_CHECK(dtype == weight.storage(), dtype_name(dtype));
  if (const auto* quantized = dynamic_cast<const QuantWeight*>(&weight)) {
    return {quantized->layout().matrix, quantized->layout().format};
  }
  return {device_weight(weight).layout(), {}};
}

}  // namespace

void CudaBackend::route(TensorView x, const PackedWeight& gate, TensorView logit_bias,
                        TensorView correction, const RouterSpec& spec, TensorView ids,
                        TensorView weights) {
  check_router(spec);
  check_choice(x, ids, weights);
  const DeviceWeight& weight = device_weight(gate);
  HEADRACE_CHECK(weight.storage() == DType::kF32 && weight.experts() == 1 &&
                     weight.n() == spec.num_experts && weight.k() == x.cols() &&
                     !weight.layout().gate_up,
                 dtype_name(weight.storage()), " ", weight.n(), " x ", weight.k());
  HEADRACE_CHECK(ids.cols() == spec.top_k, ids.cols());
  for (const TensorView& vector : {logit_bias, correction}) {
    if (vector.data != nullptr) check_vector(vector, spec.num_experts, DType::kF32);
  }
  const auto logit_bytes =
      static_cast<size_t>(x.rows()) * static_cast<size_t>(spec.num_experts) * sizeof(float);
  void* const logits = grow(experts_workspace_, logit_bytes);
  graphs_.note("route", x, &gate, logit_bias, correction, spec.score, spec.top_k, spec.num_groups,
               spec.top_groups, spec.by_best, spec.normalize, spec.norm_min, spec.norm_eps,
               spec.scale, spec.factors, logits, ids, weights);
  launch(cuda::route, {.dtype = x.dtype,
                       .x = matrix(x),
                       .gate = static_cast<const float*>(weight.data()),
                       .gate_stride = weight.layout().stride(),
                       .bias = static_cast<const float*>(logit_bias.data),
                       .correction = static_cast<const float*>(correction.data),
                       .spec = spec,
                       .logits = static_cast<float*>(logits),
                       .ids = static_cast<int32_t*>(ids.data),
                       .ids_stride = ids.row_stride,
                       .weights = static_cast<float*>(weights.data),
                       .weights_stride = weights.row_stride});
}

// The rows of a recorded step may end in padding, whose experts nobody needs.
void CudaBackend::experts(const Experts& args) {
  const TensorView& x = args.x;
  check_choice(x, args.ids, args.weights);
  check_same(x, args.out);
  const ExpertWeight gate_up = expert_weight(args.gate_up, x.dtype);
  const ExpertWeight down = expert_weight(args.down, x.dtype);
  HEADRACE_CHECK(args.gate_up.experts() == args.down.experts() &&
                     gate_up.layout.gate_up == args.gated() && !down.layout.gate_up &&
                     args.gate_up.n() == (args.gated() ? 2 : 1) * args.down.k() &&
                     args.gate_up.k() == args.down.n() && x.cols() == args.down.n(),
                 args.gate_up.experts(), " of ", args.gate_up.n(), " x ", args.gate_up.k(), " and ",
                 args.down.experts(), " of ", args.down.n(), " x ", args.down.k());
  const int64_t top_k = args.ids.cols();
  HEADRACE_CHECK(top_k >= 1 && top_k <= kMaxTopExperts, top_k);
  HEADRACE_CHECK(args.first >= 0 || top_k <= args.down.experts(), top_k);
  const ExpertsShape shape{.dtype = x.dtype,
                           .rows = x.rows(),
                           .top_k = top_k,
                           .experts = args.down.experts(),
                           .first_expert = std::max(args.first, 0),
                           .gate_up = gate_up.layout,
                           .down = down.layout,
                           .gate_up_quant = gate_up.quant,
                           .down_quant = down.quant};
  check_expert_gate(args, x.dtype);
  void* const workspace = grow(experts_workspace_, experts_workspace_bytes(shape));
  const bool padded = step_.recorded && x.rows() == step_.rows;
  const int32_t* const used_rows = padded ? step_.used_rows : nullptr;
  graphs_.note("experts", x, args.ids, args.weights, &args.gate_up, &args.down, shape.first_expert,
               used_rows, workspace, args.out, args.gate_up_bias, args.down_bias,
               args.gate.activation, args.gate.limit, args.gate.alpha, args.gate.factor);
  launch(cuda::experts, {.shape = shape,
                         .x = matrix(x),
                         .ids = static_cast<const int32_t*>(args.ids.data),
                         .ids_stride = args.ids.row_stride,
                         .weights = static_cast<const float*>(args.weights.data),
                         .weights_stride = args.weights.row_stride,
                         .gate_up = args.gate_up.data(),
                         .down = args.down.data(),
                         .gate_up_bias = args.gate_up_bias.data,
                         .down_bias = args.down_bias.data,
                         .gate = args.gate,
                         .used_rows = used_rows,
                         .workspace = workspace,
                         .out = matrix(args.out),
                         .multiprocessors = context_.properties().multiprocessors});
}

void CudaBackend::add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) {
  check_same(delta, out);
  check_vector(gate, x.cols(), x.dtype);
  HEADRACE_CHECK(x.rows() == out.rows() && x.dtype == out.dtype, x.rows(), " to ", out.rows());
  graphs_.note("add_gated", x, gate, delta, out);
  launch(cuda::add_gated, {.dtype = out.dtype,
                           .delta = matrix(delta),
                           .gate = gate.data,
                           .x = matrix(x),
                           .out = matrix(out)});
}

}  // namespace headrace::cuda
