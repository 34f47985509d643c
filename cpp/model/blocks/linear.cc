#include "model/blocks/linear.h"

#include <span>

namespace headrace {

namespace {

void add_loras(const BlockContext& context, const Linear& linear, const TensorView& x,
               const TensorView& out) {
  const std::span<const LoraGroup> groups = context.loras.groups(linear.site);
  if (!groups.empty()) context.backend.lora(x, groups, context.lora_scratch, out);
}

}  // namespace

Linear load_linear(WeightReader& reader, const LinearSource& source) {
  Linear out;
  out.weight = reader.matrix(source.matrix);
  out.bias = reader.vector(source.bias);
  out.site = source.matrix.site;
  return out;
}

void run_linear(const BlockContext& context, const Linear& linear, const TensorView& x,
                const TensorView& out) {
  context.backend.linear(x, *linear.weight, linear.bias.view, out);
  add_loras(context, linear, x, out);
}

// Rows without an adapter get the fused op's bits either way, here and below.
void run_silu_mul(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const TensorView& gate_up, const TensorView& out) {
  if (context.loras.groups(linear.site).empty()) {
    context.backend.linear_silu_mul(x, *linear.weight, linear.bias.view, out);
    return;
  }
  run_linear(context, linear, x, gate_up);
  context.backend.silu_mul(gate_up, out);
}

void run_add_norm(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const StepRows& step, const TensorView& norm) {
  Backend& backend = context.backend;
  if (context.loras.groups(linear.site).empty()) {
    backend.linear_add_rms_norm({x, *linear.weight, linear.bias.view, step.delta, step.residual,
                                 norm, context.norm_eps, step.normed});
    return;
  }
  run_linear(context, linear, x, step.delta);
  backend.add_rms_norm(step.residual, step.delta, norm, context.norm_eps, step.normed);
}

}  // namespace headrace
