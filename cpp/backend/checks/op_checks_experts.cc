#include "backend/checks/op_checks_experts.h"

#include <cmath>

#include "backend/checks/op_checks.h"
#include "backend/checks/tensor_checks.h"
#include "base/check.h"

namespace headrace {

void check_router(const RouterSpec& spec) {
  HEADRACE_CHECK(spec.num_experts >= 1 && spec.num_experts <= kMaxExperts, spec.num_experts);
  HEADRACE_CHECK(spec.top_k >= 1 && spec.top_k <= spec.num_experts && spec.top_k <= kMaxTopExperts,
                 spec.top_k, " of ", spec.num_experts);
  HEADRACE_CHECK(spec.num_groups >= 1 && spec.num_experts % spec.num_groups == 0, spec.num_groups);
  HEADRACE_CHECK(spec.top_groups >= 1 && spec.top_groups <= spec.num_groups &&
                     spec.top_groups <= kMaxTopExperts &&
                     spec.num_experts / spec.num_groups * spec.top_groups >= spec.top_k,
                 spec.top_groups, " of ", spec.num_groups);
  HEADRACE_CHECK(std::isfinite(spec.norm_min) && std::isfinite(spec.norm_eps) &&
                     std::isfinite(spec.scale) && spec.norm_min >= 0.0f && spec.norm_eps >= 0.0f,
                 spec.norm_min, " ", spec.norm_eps, " ", spec.scale);
  if (spec.factors.data != nullptr) check_vector(spec.factors, spec.num_experts);
}

void check_route(const TensorView& x, const PackedWeight& gate, const TensorView& logit_bias,
                 const TensorView& correction, const RouterSpec& spec, const TensorView& ids,
                 const TensorView& weights) {
  check_router(spec);
  HEADRACE_CHECK(
      gate.storage() == DType::kF32 && gate.experts() == 1 && gate.n() == spec.num_experts,
      dtype_name(gate.storage()), " ", gate.n());
  check_matrix(x, x.shape[0], gate.k());
  check_matrix(ids, x.rows(), spec.top_k, DType::kI32);
  check_matrix(weights, x.rows(), spec.top_k);
  if (logit_bias.data != nullptr) check_vector(logit_bias, spec.num_experts);
  if (correction.data != nullptr) check_vector(correction, spec.num_experts);
}

void check_expert_gate(const Experts& args, DType act) {
  if (args.gated()) {
    check_gate(args.gate);
  } else {
    HEADRACE_CHECK(args.gate.activation == Activation::kRelu2 && args.gate.limit == 0.0f &&
                       args.gate.factor == 1.0f,
                   static_cast<int>(args.gate.activation));
  }
  const int64_t experts = args.down.experts();
  if (args.gate_up_bias.data != nullptr) {
    check_vector(args.gate_up_bias, experts * args.gate_up.n(), act);
  }
  if (args.down_bias.data != nullptr) check_vector(args.down_bias, experts * args.down.n(), act);
}

void check_experts(const Experts& args) {
  check_expert_gate(args);
  const int64_t rows = args.x.shape[0], top_k = args.ids.shape[1];
  HEADRACE_CHECK(args.gate_up.experts() == args.down.experts() &&
                     args.gate_up.n() == (args.gated() ? 2 : 1) * args.down.k() &&
                     args.gate_up.k() == args.down.n(),
                 args.gate_up.experts(), " of ", args.gate_up.n(), " x ", args.gate_up.k(), " and ",
                 args.down.experts(), " of ", args.down.n(), " x ", args.down.k());
  HEADRACE_CHECK(
      top_k >= 1 && (args.first >= 0 || top_k <= args.gate_up.experts()) && top_k <= kMaxTopExperts,
      top_k);
  check_matrix(args.x, rows, args.gate_up.k());
  check_matrix(args.ids, rows, top_k, DType::kI32);
  check_matrix(args.weights, rows, top_k);
  check_matrix(args.out, rows, args.down.n());
}

void check_add(const TensorView& x, const TensorView& out) {
  check_matrix(x, out.shape[0], out.shape[1]);
  check_matrix(out, out.shape[0], out.shape[1]);
}

void check_add_gated(const TensorView& x, const TensorView& gate, const TensorView& delta,
                     const TensorView& out) {
  check_add(delta, out);
  check_matrix(x, out.rows(), x.shape[1]);
  check_vector(gate, x.cols());
}

}  // namespace headrace
