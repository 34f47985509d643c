#include "model/blocks/linear.h"

#include <span>

#include "model/blocks/carver.h"

namespace headrace {

namespace {

void add_loras(const BlockContext& context, const Linear& linear, const TensorView& x,
               const TensorView& out) {
  const std::span<const LoraGroup> groups = context.loras.groups(linear.site);
  if (!groups.empty()) context.backend.lora(x, groups, context.lora_scratch, out);
}

void run_gathering(const BlockContext& context, const Linear& linear, const TensorView& x,
                   const TensorView& out) {
  const TensorView whole = linear.gather.whole.first_rows(x.rows());
  const TensorView part = linear.gather.part.first_rows(x.rows());
  context.backend.gather_columns(x, whole);
  context.backend.linear(whole, *linear.weight, linear.bias.view, part);
  add_loras(context, linear, whole, part);
  context.backend.gather_columns(part, out);
}

}  // namespace

Linear load_linear(WeightReader& reader, const LinearSource& source) {
  Linear out;
  out.weight = reader.matrix(source.matrix);
  out.bias = reader.vector(source.bias);
  out.site = source.matrix.site;
  out.gathers = source.gathers;
  return out;
}

GatherScratch place_gather(bool gathers, int64_t n, int64_t k, const StepLimits& limits,
                           Carver& carver) {
  const int64_t rows = gathers ? limits.rows : 0;
  GatherScratch out;
  out.whole = carver.matrix(rows, k, limits.activation);
  out.part = carver.matrix(rows, n, limits.activation);
  return out;
}

void run_linear(const BlockContext& context, const Linear& linear, const TensorView& x,
                const TensorView& out) {
  if (linear.gathers) return run_gathering(context, linear, x, out);
  context.backend.linear(x, *linear.weight, linear.bias.view, out);
  add_loras(context, linear, x, out);
}

// Rows without an adapter get the fused op's bits either way.
void run_gate_mul(const BlockContext& context, const Linear& linear, const GateSpec& gate,
                  const TensorView& x, const TensorView& gate_up, const TensorView& out) {
  if (context.loras.groups(linear.site).empty()) {
    context.backend.linear_gate_mul(x, *linear.weight, linear.bias.view, gate, out);
    return;
  }
  run_linear(context, linear, x, gate_up);
  context.backend.gate_mul(gate_up, gate, out);
}

}  // namespace headrace
