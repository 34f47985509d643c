#include "model/blocks/join.h"

namespace headrace {

namespace {

/// Whether nothing but the addition comes between a block and the next one's RMS norm.
bool is_plain(const BlockContext& context, const Tail& tail) {
  return context.norm.kind == NormKind::kRms && tail.post_norm.empty() && tail.sum_norm.empty() &&
         tail.scale == 1.0f && !tail.norm.empty();
}

}  // namespace

void run_norm(const BlockContext& context, const TensorView& x, const NormView& norm,
              const TensorView& out) {
  if (context.norm.kind == NormKind::kRms) {
    context.backend.rms_norm(x, norm.weight, context.norm.eps, out);
  } else {
    context.backend.layer_norm(x, norm.weight, norm.bias, context.norm.eps, out);
  }
}

void join(const BlockContext& context, const StepRows& step, const Tail& tail, DeltaPart part) {
  Backend& backend = context.backend;
  const bool reduces = context.has_ranks && part == DeltaPart::kOwn;
  if (is_plain(context, tail) && reduces) {
    backend.all_reduce_add_rms_norm(
        {step.delta, step.residual, tail.norm.weight, context.norm.eps, step.normed});
    return;
  }
  if (reduces) backend.all_reduce(step.delta);
  if (!tail.post_norm.empty()) run_norm(context, step.delta, tail.post_norm, step.delta);
  if (tail.scale != 1.0f) backend.scale(step.delta, tail.scale, step.delta);
  const bool fuses = context.norm.kind == NormKind::kRms && tail.sum_norm.empty();
  if (fuses && !tail.norm.empty()) {
    backend.add_rms_norm(step.residual, step.delta, tail.norm.weight, context.norm.eps,
                         step.normed);
    return;
  }
  backend.add(step.delta, step.residual);
  if (!tail.sum_norm.empty()) run_norm(context, step.residual, tail.sum_norm, step.residual);
  if (!tail.norm.empty()) run_norm(context, step.residual, tail.norm, step.normed);
}

void join(const BlockContext& context, const Linear& linear, const TensorView& x,
          const StepRows& step, const Tail& tail) {
  const bool alone = !context.has_ranks && context.loras.groups(linear.site).empty();
  if (alone && is_plain(context, tail)) {
    context.backend.linear_add_rms_norm({x, *linear.weight, linear.bias.view, step.delta,
                                         step.residual, tail.norm.weight, context.norm.eps,
                                         step.normed});
    return;
  }
  run_linear(context, linear, x, step.delta);
  join(context, step, tail, linear.gathers ? DeltaPart::kWhole : DeltaPart::kOwn);
}

}  // namespace headrace
