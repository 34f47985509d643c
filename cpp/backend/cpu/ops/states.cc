#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/checks/op_checks_state.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/host/array_kv_cache.h"
#include "backend/host/state_runs.h"
#include "base/checked_math.h"

namespace headrace {

static_assert(kMostTaps == kLargestConv && kStateColumns == kMatrixColumns);

/// What the rows of a recurrence read and give, by columns of matrices of the step.
struct CpuBackend::HeadRows {
  TensorView x;
  int64_t keys, reads, values;  ///< first columns in x
  int32_t shared;               ///< heads that go with the same keys and reads
  TensorView gates;             ///< [T, 2 * heads]: decays, rates
  const float* skips;           ///< [heads], or null
  TensorView out;
};

// A task is a slice's rows over two blocks of a head's columns: it is done by one thread, so that
// the number of threads can't matter.
void CpuBackend::run_recurrence(void (*kernel)(const StateTask& task), const KvCache& cache,
                                int32_t layer, const HeadRows& in) {
  const auto& slots = dynamic_cast<const ArrayKvCache&>(cache);
  const StateRows& states = cache.layout().state(layer);
  constexpr int64_t kColumns = 2 * kStateColumns;
  const int64_t parts = ceil_div(int64_t{states.value_dim}, kColumns);
  const auto run_task = [&](const SeqSlice& seq, int32_t head, int64_t column) {
    const int64_t offset = head * state_matrix_numbers(states) + column * states.key_dim;
    const int64_t key = int64_t{head / in.shared} * states.key_dim;
    const int64_t value = int64_t{head} * states.value_dim + column;
    for_state_runs(seq, [&](const StateRun& run) {
      const float* const x = in.x.row<float>(run.first_row);
      const float* const gates = in.gates.row<float>(run.first_row);
      kernel({.from = run.from == kZeroState ? nullptr : slots.matrices(layer, run.from) + offset,
              .to = slots.matrices(layer, run.to) + offset,
              .key_dim = states.key_dim,
              .columns = std::min(kColumns, states.value_dim - column),
              .rows = run.num_rows,
              .keys = x + in.keys + key,
              .reads = x + in.reads + key,
              .values = x + in.values + value,
              .stride = in.x.row_stride,
              .decays = gates + head,
              .rates = gates + states.heads + head,
              .gate_stride = in.gates.row_stride,
              .skip = in.skips == nullptr ? 0.0f : in.skips[head],
              .out = in.out.row<float>(run.first_row) + value,
              .out_stride = in.out.row_stride});
    });
  };
  const auto slices = static_cast<int64_t>(step_.seqs.size());
  const int64_t rows_each = ceil_div(in.x.rows(), std::max<int64_t>(slices, 1));
  const int64_t bytes = 2 * kColumns * states.key_dim * int64_t{sizeof(float)};
  for_rows(slices * states.heads * parts, bytes * rows_each, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / parts;
      run_task(step_.seqs[static_cast<size_t>(head / states.heads)],
               static_cast<int32_t>(head % states.heads), i % parts * kColumns);
    }
  });
}

void CpuBackend::delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec, KvCache& cache,
                            int32_t layer, TensorView out) {
  check_delta_rule(step_, step_rows(step_), qkv, gates, spec, cache, layer, out);
  run_recurrence(isa_->states->delta_rule, cache, layer,
                 {.x = qkv,
                  .keys = spec.key_columns(),
                  .reads = 0,
                  .values = 2 * spec.key_columns(),
                  .shared = spec.value_heads / spec.key_heads,
                  .gates = gates,
                  .skips = nullptr,
                  .out = out});
}

void CpuBackend::ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) {
  check_ssm_scan(step_, step_rows(step_), args, cache, layer, out);
  const ScanSpec& spec = args.spec;
  const int64_t rows = out.rows(), heads = spec.heads;
  const TensorView gates(scratch(static_cast<size_t>(rows * 2 * heads) * sizeof(float)),
                         DType::kF32, {rows, 2 * heads});
  // An exponential costs about as much as touching 64 bytes of cached memory.
  for_rows(rows, heads * 4 * 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const row = gates.row<float>(i);
      isa_->states->decays(args.dt.row<float>(i), args.dt_bias.as<float>(), args.a_log.as<float>(),
                           spec.dt_min, spec.dt_max, heads, row, row + heads);
    }
  });
  run_recurrence(isa_->states->ssm_scan, cache, layer,
                 {.x = args.xbc,
                  .keys = spec.x_columns(),
                  .reads = spec.x_columns() + int64_t{spec.groups} * spec.state_dim,
                  .values = 0,
                  .shared = spec.heads / spec.groups,
                  .gates = gates,
                  .skips = args.skip.as<float>(),
                  .out = out});
}

void CpuBackend::delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                               TensorView dt_bias, const DeltaSpec& spec, TensorView gates) {
  check_delta_prepare(qkv, b, a, a_log, dt_bias, spec, gates);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(spec.key_dim));
  const int64_t heads = spec.value_heads;
  for_rows(qkv.rows(), 4 * spec.key_columns() * int64_t{sizeof(float)} + heads * 5 * 64,
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               float* const row = qkv.row<float>(i);
               for (int32_t h = 0; h < 2 * spec.key_heads; ++h) {
                 isa_->states->l2_norm(row + int64_t{h} * spec.key_dim,
                                       h < spec.key_heads ? q_scale : 1.0f, spec.key_dim);
               }
               float* const gate = gates.row<float>(i);
               isa_->states->decays(a.row<float>(i), dt_bias.as<float>(), a_log.as<float>(), 0.0f,
                                    std::numeric_limits<float>::infinity(), heads, gate,
                                    gate + heads);
               isa_->states->sigmoid(b.row<float>(i), heads, gate + heads);
             }
           });
}

// A task is some channels of all slices.
void CpuBackend::causal_conv(TensorView x, TensorView weight, TensorView bias, const ConvSpec& spec,
                             KvCache& cache, int32_t layer, TensorView out) {
  check_causal_conv(step_, step_rows(step_), x, weight, bias, spec, cache, layer, out);
  const auto& slots = dynamic_cast<const ArrayKvCache&>(cache);
  // Long runs of channels are read ahead; but every thread should have some.
  constexpr int64_t kChannels = 128, kMostChannels = 1024;
  static constexpr float kZeros[kMostChannels] = {};
  const int64_t channels = spec.channels, window = spec.kernel - 1;
  const int64_t share = round_up(ceil_div(channels, int64_t{2} * pool_.num_threads()), kChannels);
  const int64_t each = std::min(share, kMostChannels);
  const auto run_channels = [&](int64_t first, int64_t count) {
    const auto run_rows = [&](const StateRun& run) {
      const bool fresh = run.from == kZeroState;
      const TensorView rows = x.rows_from(run.first_row, run.num_rows).columns(first, count);
      const float* const before = fresh ? kZeros : slots.window(layer, run.from) + first;
      const int64_t before_stride = fresh ? 0 : channels;
      isa_->states->causal_conv({.x = rows.row<float>(0),
                                 .window = before,
                                 .taps = weight.as<float>() + first,
                                 .bias = bias.data == nullptr ? nullptr : bias.as<float>() + first,
                                 .out = out.row<float>(run.first_row) + first,
                                 .x_stride = rows.row_stride,
                                 .window_stride = before_stride,
                                 .tap_stride = channels,
                                 .out_stride = out.row_stride,
                                 .rows = run.num_rows,
                                 .channels = count,
                                 .kernel = spec.kernel,
                                 .silu = spec.silu});
      // The last rows, of which the oldest may be some of `before`, perhaps in the same place.
      float* to = slots.window(layer, run.to) + first;
      for (int64_t i = run.num_rows - window; i < run.num_rows; ++i, to += channels) {
        std::copy_n(i < 0 ? before + (i + window) * before_stride : rows.row<float>(i), count, to);
      }
    };
    for (const SeqSlice& seq : step_.seqs) for_state_runs(seq, run_rows);
  };
  for_rows(ceil_div(channels, each), 2 * x.rows() * each * int64_t{sizeof(float)},
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               run_channels(i * each, std::min(each, channels - i * each));
             }
           });
}

}  // namespace headrace
