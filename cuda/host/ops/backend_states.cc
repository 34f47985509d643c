// The ops of layers with a state, and what they know of a step's slices.

#include "backend/checks/op_checks_state.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/elementwise/multiply.h"
#include "cuda/kernels/states/causal_conv.h"
#include "cuda/kernels/states/delta_prepare.h"
#include "cuda/kernels/states/delta_rule.h"
#include "cuda/kernels/states/gated_norm.h"
#include "cuda/kernels/states/ssm_scan.h"

namespace headrace::cuda {

namespace {

const float* floats(const TensorView& x) { return static_cast<const float*>(x.data); }

}  // namespace

// A recorded step's slices have one row each, and so one store and one piece.
void CudaBackend::queue_states() {
  step_.states = {};
  const auto& seqs = step_.batch.seqs;
  if (seqs.empty() || seqs.front().state_out == kZeroState) return;  // no such layer is computed
  const size_t capacity = step_.recorded ? static_cast<size_t>(step_.rows) : 0;
  state_lists_.fill(seqs, capacity);
  if (swaps_ != nullptr) {
    for (const SeqSlice& seq : seqs) {
      if (seq.state_in != kZeroState) swaps_->note_use(seq.state_in, true);
    }
    for (const StateSave& store : state_lists_.stores) swaps_->note_use(store.slot, true);
  }
  step_.states = {.slices = arena_.put<StateSlice>(state_lists_.slices),
                  .stores = arena_.put<StateSave>(state_lists_.stores, capacity),
                  .pieces = arena_.put<StatePiece>(state_lists_.pieces),
                  .num_slices = static_cast<int32_t>(state_lists_.slices.size()),
                  .num_pieces = static_cast<int32_t>(state_lists_.pieces.size())};
}

void CudaBackend::causal_conv(TensorView x, TensorView weight, TensorView bias,
                              const ConvSpec& spec, KvCache& cache, int32_t layer, TensorView out) {
  check_causal_conv(step_.batch, step_.rows, x, weight, bias, spec, cache, layer, out, out.dtype);
  const StateStep& step = step_.states;
  graphs_.note("causal_conv", x, weight, bias, spec.channels, spec.kernel, spec.silu, &cache, layer,
               step.slices, step.stores, step.pieces, step.num_pieces, out);
  launch(cuda::causal_conv, {.dtype = out.dtype,
                             .x = matrix(x),
                             .weight = floats(weight),
                             .bias = floats(bias),
                             .spec = spec,
                             .step = step,
                             .states = device_cache(cache).states().windows(layer),
                             .out = matrix(out)});
}

void CudaBackend::delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                                TensorView dt_bias, const DeltaSpec& spec, TensorView gates) {
  check_delta_prepare(qkv, b, a, a_log, dt_bias, spec, gates, qkv.dtype);
  graphs_.note("delta_prepare", qkv, b, a, a_log, dt_bias, spec.key_heads, spec.value_heads,
               spec.key_dim, spec.value_dim, gates);
  launch(cuda::delta_prepare, {.dtype = qkv.dtype,
                               .qkv = matrix(qkv),
                               .b = matrix(b),
                               .a = matrix(a),
                               .a_log = floats(a_log),
                               .dt_bias = floats(dt_bias),
                               .spec = spec,
                               .gates = matrix(gates)});
}

void CudaBackend::delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec,
                             KvCache& cache, int32_t layer, TensorView out) {
  check_delta_rule(step_.batch, step_.rows, qkv, gates, spec, cache, layer, out, out.dtype);
  const StateStep& step = step_.states;
  graphs_.note("delta_rule", qkv, gates, spec.key_heads, spec.value_heads, spec.key_dim,
               spec.value_dim, &cache, layer, step.slices, step.stores, step.num_slices, out);
  launch(cuda::delta_rule, {.dtype = out.dtype,
                            .qkv = matrix(qkv),
                            .gates = matrix(gates),
                            .spec = spec,
                            .step = step,
                            .states = device_cache(cache).states().matrices(layer),
                            .out = matrix(out)});
}

void CudaBackend::ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) {
  check_ssm_scan(step_.batch, step_.rows, args, cache, layer, out, out.dtype);
  const StateStep& step = step_.states;
  const ScanSpec& spec = args.spec;
  graphs_.note("ssm_scan", args.xbc, args.dt, args.a_log, args.dt_bias, args.skip, spec.heads,
               spec.groups, spec.head_dim, spec.state_dim, spec.dt_min, spec.dt_max, &cache, layer,
               step.slices, step.stores, step.num_slices, out);
  launch(cuda::ssm_scan, {.dtype = out.dtype,
                          .xbc = matrix(args.xbc),
                          .dt = matrix(args.dt),
                          .a_log = floats(args.a_log),
                          .dt_bias = floats(args.dt_bias),
                          .skip = floats(args.skip),
                          .spec = spec,
                          .step = step,
                          .states = device_cache(cache).states().matrices(layer),
                          .out = matrix(out)});
}

void CudaBackend::gated_norm(TensorView x, TensorView gate, TensorView weight,
                             const GatedNormSpec& spec, TensorView out) {
  check_gated_norm(x, gate, weight, spec, out, out.dtype);
  expected_.reset();  // it leaves no codes: the hint is not for a later norm
  graphs_.note("gated_norm", x, gate, weight, spec.group, spec.eps, spec.gate, spec.gate_first,
               out);
  launch(cuda::gated_norm, {.dtype = out.dtype,
                            .x = matrix(x),
                            .gate = matrix(gate),
                            .weight = floats(weight),
                            .shares_weight = weight.shape.elements() == spec.group,
                            .spec = spec,
                            .out = matrix(out)});
}

void CudaBackend::multiply(TensorView a, TensorView b, TensorView out) {
  check_multiply(a, b, out, out.dtype);
  graphs_.note("multiply", a, b, out);
  launch(cuda::multiply, {.dtype = out.dtype, .a = matrix(a), .b = matrix(b), .out = matrix(out)});
}

}  // namespace headrace::cuda
