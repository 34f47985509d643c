#include "backend/checks/op_checks_state.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/checks/tensor_checks.h"
#include "base/check.h"

namespace headrace {

namespace {

bool is_state_dim(int32_t dim) { return dim >= 8 && dim <= kLargestStateDim && dim % 8 == 0; }

/// Whether its slices have slots. Those of a step that computes no layer with a state have none.
bool names_slots(const StepBatch& batch) {
  return !batch.seqs.empty() && batch.seqs.front().state_out != kZeroState;
}

void check_names_none(const SeqSlice& seq) {
  HEADRACE_CHECK(seq.state_in == kZeroState && seq.state_out == kZeroState && seq.saves.empty(),
                 seq.state_in, " and ", seq.state_out, " of a step without states");
}

/// The layer's states; the step is one of `cache`.
const StateRows& layer_states(const StepBatch& batch, const KvCache& cache, int32_t layer) {
  HEADRACE_CHECK(batch.cache == &cache, "the step's slots are of another cache");
  const CacheLayout& layout = cache.layout();
  HEADRACE_CHECK(layout.has_states() && layer >= 0 && layer < layout.num_layers(), layer, " of ",
                 layout.num_layers());
  HEADRACE_CHECK(names_slots(batch), "the step names no slots");
  return layout.state(layer);
}

void check_matrices(const StateRows& states, int32_t heads, int32_t key_dim, int32_t value_dim) {
  HEADRACE_CHECK(
      states.heads == heads && states.key_dim == key_dim && states.value_dim == value_dim, heads,
      " x ", key_dim, " x ", value_dim, " in states of ", states.heads, " x ", states.key_dim,
      " x ", states.value_dim);
}

void check_delta_spec(const DeltaSpec& spec) {
  HEADRACE_CHECK(
      spec.key_heads > 0 && spec.value_heads > 0 && spec.value_heads % spec.key_heads == 0,
      spec.value_heads, " on ", spec.key_heads);
  HEADRACE_CHECK(is_state_dim(spec.key_dim) && is_state_dim(spec.value_dim), spec.key_dim, " x ",
                 spec.value_dim);
}

/// A slice's slots and saves; appends those that it stores to.
void check_slice(const SeqSlice& seq, int32_t num_slots, std::vector<int32_t>& stored) {
  const auto check_slot = [num_slots](int32_t slot) {
    HEADRACE_CHECK(slot >= 0 && slot < num_slots, "slot ", slot, " of ", num_slots);
  };
  if (seq.state_in != kZeroState) check_slot(seq.state_in);
  check_slot(seq.state_out);
  stored.push_back(seq.state_out);
  int32_t next_row = 0;
  for (const StateSave& save : seq.saves) {
    HEADRACE_CHECK(save.row >= next_row && save.row < seq.num_rows - 1, "row ", save.row, " of ",
                   seq.num_rows, " from ", next_row);
    check_slot(save.slot);
    HEADRACE_CHECK(save.slot != seq.state_in, "slot ", save.slot);
    stored.push_back(save.slot);
    next_row = save.row + 1;
  }
}

}  // namespace

void check_state_layout(const CacheLayout& layout) {
  if (!layout.has_states()) return;
  HEADRACE_CHECK(layout.states.size() == layout.layers.size(), layout.states.size(), " of ",
                 layout.layers.size());
  for (const StateRows& rows : layout.states) {
    HEADRACE_CHECK(rows.channels >= 0 && rows.heads >= 0, rows.channels, " and ", rows.heads);
    HEADRACE_CHECK(rows.channels == 0 || (rows.window >= 1 && rows.window < kLargestConv),
                   rows.window);
    HEADRACE_CHECK(rows.heads == 0 || (is_state_dim(rows.key_dim) && is_state_dim(rows.value_dim)),
                   rows.key_dim, " x ", rows.value_dim);
  }
}

void check_num_slots(const CacheLayout& layout, int32_t num_slots) {
  HEADRACE_CHECK(num_slots == 0 || (num_slots > 0 && layout.has_states()), num_slots);
}

void check_batch_states(const StepBatch& batch) {
  const bool has_states = batch.cache != nullptr && batch.cache->layout().has_states();
  if (!has_states || !names_slots(batch)) {
    for (const SeqSlice& seq : batch.seqs) check_names_none(seq);
    return;
  }
  thread_local std::vector<int32_t> stored;  // steps take no memory
  stored.clear();
  for (const SeqSlice& seq : batch.seqs) check_slice(seq, batch.cache->num_state_slots(), stored);
  std::ranges::sort(stored);
  const auto twice = std::ranges::adjacent_find(stored);
  HEADRACE_CHECK(twice == stored.end(), "slot ", *twice, " is stored to twice");
  for (const SeqSlice& seq : batch.seqs) {
    HEADRACE_CHECK(
        seq.state_in == seq.state_out || !std::ranges::binary_search(stored, seq.state_in), "slot ",
        seq.state_in, " is another slice's");
  }
}

void check_causal_conv(const StepBatch& batch, int64_t rows, const TensorView& x,
                       const TensorView& weight, const TensorView& bias, const ConvSpec& spec,
                       const KvCache& cache, int32_t layer, const TensorView& out, DType act) {
  HEADRACE_CHECK(spec.channels > 0 && spec.kernel >= 2 && spec.kernel <= kLargestConv,
                 spec.channels, " and ", spec.kernel);
  const StateRows& states = layer_states(batch, cache, layer);
  HEADRACE_CHECK(states.channels == spec.channels && states.window == spec.kernel - 1,
                 spec.channels, " and ", spec.kernel, " with windows of ", states.channels, " and ",
                 states.window);
  check_matrix(x, rows, spec.channels, act);
  check_matrix(out, rows, spec.channels, act);
  check_vector(weight, int64_t{spec.kernel} * spec.channels);
  if (bias.data != nullptr) check_vector(bias, spec.channels);
}

void check_delta_prepare(const TensorView& qkv, const TensorView& b, const TensorView& a,
                         const TensorView& a_log, const TensorView& dt_bias, const DeltaSpec& spec,
                         const TensorView& gates, DType act) {
  check_delta_spec(spec);
  const int64_t rows = qkv.shape[0], heads = spec.value_heads;
  check_matrix(qkv, rows, spec.qkv_columns(), act);
  check_matrix(b, rows, heads, act);
  check_matrix(a, rows, heads, act);
  check_vector(a_log, heads);
  check_vector(dt_bias, heads);
  check_matrix(gates, rows, 2 * heads);
}

void check_delta_rule(const StepBatch& batch, int64_t rows, const TensorView& qkv,
                      const TensorView& gates, const DeltaSpec& spec, const KvCache& cache,
                      int32_t layer, const TensorView& out, DType act) {
  check_delta_spec(spec);
  check_matrices(layer_states(batch, cache, layer), spec.value_heads, spec.key_dim, spec.value_dim);
  check_matrix(qkv, rows, spec.qkv_columns(), act);
  check_matrix(gates, rows, 2 * int64_t{spec.value_heads});
  check_matrix(out, rows, spec.value_columns(), act);
}

void check_ssm_scan(const StepBatch& batch, int64_t rows, const ScanArgs& args,
                    const KvCache& cache, int32_t layer, const TensorView& out, DType act) {
  const ScanSpec& spec = args.spec;
  HEADRACE_CHECK(spec.heads > 0 && spec.groups > 0 && spec.heads % spec.groups == 0, spec.heads,
                 " in ", spec.groups);
  HEADRACE_CHECK(is_state_dim(spec.head_dim) && is_state_dim(spec.state_dim), spec.head_dim, " x ",
                 spec.state_dim);
  HEADRACE_CHECK(std::isfinite(spec.dt_min) && spec.dt_max >= spec.dt_min, spec.dt_min, " to ",
                 spec.dt_max);
  check_matrices(layer_states(batch, cache, layer), spec.heads, spec.state_dim, spec.head_dim);
  check_matrix(args.xbc, rows, spec.xbc_columns(), act);
  check_matrix(args.dt, rows, spec.heads, act);
  for (const TensorView* vector : {&args.a_log, &args.dt_bias, &args.skip}) {
    check_vector(*vector, spec.heads);
  }
  check_matrix(out, rows, spec.x_columns(), act);
}

void check_gated_norm(const TensorView& x, const TensorView& gate, const TensorView& weight,
                      const GatedNormSpec& spec, const TensorView& out, DType act) {
  const int64_t cols = out.shape[1];
  HEADRACE_CHECK(spec.group > 0 && cols % spec.group == 0, spec.group, " of ", cols);
  HEADRACE_CHECK(
      spec.gate == GatedNormSpec::Gate::kSilu || spec.gate == GatedNormSpec::Gate::kSigmoid,
      static_cast<int>(spec.gate));
  check_matrix(out, out.shape[0], cols, act);
  check_matrix(x, out.rows(), cols, act);
  check_matrix(gate, out.rows(), cols, act);
  check_vector(weight, weight.shape.elements() == spec.group ? spec.group : cols);
}

void check_multiply(const TensorView& a, const TensorView& b, const TensorView& out, DType act) {
  check_matrix(out, out.shape[0], out.shape[1], act);
  check_matrix(a, out.rows(), out.cols(), act);
  check_matrix(b, out.rows(), out.cols(), act);
}

}  // namespace headrace
