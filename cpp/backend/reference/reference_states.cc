#include "backend/reference/reference_states.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/host/array_kv_cache.h"
#include "backend/host/state_runs.h"
#include "backend/reference/reference_rows.h"

namespace headrace {

namespace {

/// What is in a slot, or as many zeros.
std::vector<float> load(const float* stored, int32_t slot, int64_t count) {
  if (slot == kZeroState) return std::vector<float>(static_cast<size_t>(count), 0.0f);
  return {stored, stored + count};
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// A head's state [keys][values].
struct HeadState {
  int32_t keys, values;
  std::vector<float> numbers;

  /// (S^T k)[j].
  double read(const float* k, int32_t j) const {
    double sum = 0.0;
    for (int32_t i = 0; i < keys; ++i) {
      sum += static_cast<double>(numbers[static_cast<size_t>(i * values + j)]) * k[i];
    }
    return sum;
  }
  /// S = decay * S + k u^T, in column j.
  void write(double decay, const float* k, double u, int32_t j) {
    for (int32_t i = 0; i < keys; ++i) {
      float& number = numbers[static_cast<size_t>(i * values + j)];
      number = static_cast<float>(decay * static_cast<double>(number) + k[i] * u);
    }
  }
};

/// Calls step(head, its state, row) for the rows of all slices, in order.
template <class Step>
void for_head_rows(const StepBatch& batch, KvCache& cache, int32_t layer, const Step& step) {
  const auto& slots = dynamic_cast<const ArrayKvCache&>(cache);
  const StateRows& rows = cache.layout().state(layer);
  const int64_t stored = state_matrix_numbers(rows), count = int64_t{rows.key_dim} * rows.value_dim;
  for (const SeqSlice& seq : batch.seqs) {
    for_state_runs(seq, [&](const StateRun& run) {
      for (int32_t h = 0; h < rows.heads; ++h) {
        const float* from =
            run.from == kZeroState ? nullptr : slots.matrices(layer, run.from) + h * stored;
        HeadState state{rows.key_dim, rows.value_dim, load(from, run.from, count)};
        for (int32_t i = 0; i < run.num_rows; ++i) step(h, state, run.first_row + i);
        std::ranges::copy(state.numbers, slots.matrices(layer, run.to) + h * stored);
      }
    });
  }
}

/// x *= 1 / sqrt(sum of x^2 + 1e-6) * scale.
void normalize_l2(float* x, int32_t count, double scale) {
  double sum = 1e-6;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double factor = scale / std::sqrt(sum);
  for (int32_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * factor);
}

}  // namespace

void reference_causal_conv(const StepBatch& batch, TensorView x, TensorView weight, TensorView bias,
                           const ConvSpec& spec, KvCache& cache, int32_t layer, TensorView out) {
  const auto& slots = dynamic_cast<const ArrayKvCache&>(cache);
  const int32_t channels = spec.channels, window = spec.kernel - 1;
  const float* const taps = weight.as<float>();
  const auto run_rows = [&](const StateRun& run) {
    const float* from = run.from == kZeroState ? nullptr : slots.window(layer, run.from);
    std::vector<float> inputs = load(from, run.from, int64_t{window} * channels);
    for (int32_t i = 0; i < run.num_rows; ++i) {
      const float* row = x.row<float>(run.first_row + i);
      inputs.insert(inputs.end(), row, row + channels);
      for (int32_t c = 0; c < channels; ++c) {
        double sum = bias.data == nullptr ? 0.0 : static_cast<double>(bias.as<float>()[c]);
        for (int32_t j = 0; j < spec.kernel; ++j) {
          sum += static_cast<double>(taps[int64_t{j} * channels + c]) *
                 inputs[static_cast<size_t>(int64_t{i + j} * channels + c)];
        }
        if (spec.silu) sum = reference_activation(Activation::kSilu, sum);
        out.row<float>(run.first_row + i)[c] = static_cast<float>(sum);
      }
    }
    std::copy(inputs.end() - int64_t{window} * channels, inputs.end(), slots.window(layer, run.to));
  };
  for (const SeqSlice& seq : batch.seqs) for_state_runs(seq, run_rows);
}

void reference_delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                             TensorView dt_bias, const DeltaSpec& spec, TensorView gates) {
  const int32_t heads = spec.value_heads;
  for (int64_t i = 0; i < qkv.rows(); ++i) {
    float* const q = qkv.row<float>(i);
    for (int32_t h = 0; h < 2 * spec.key_heads; ++h) {
      const double scale =
          h < spec.key_heads ? 1.0 / std::sqrt(static_cast<double>(spec.key_dim)) : 1.0;
      normalize_l2(q + int64_t{h} * spec.key_dim, spec.key_dim, scale);
    }
    float* const gate = gates.row<float>(i);
    for (int32_t h = 0; h < heads; ++h) {
      const double dt = static_cast<double>(a.row<float>(i)[h]) + dt_bias.as<float>()[h];
      const double rate = std::exp(static_cast<double>(a_log.as<float>()[h]));
      gate[h] = static_cast<float>(std::exp(-rate * softplus(dt)));
      gate[heads + h] = static_cast<float>(sigmoid(b.row<float>(i)[h]));
    }
  }
}

void reference_delta_rule(const StepBatch& batch, TensorView qkv, TensorView gates,
                          const DeltaSpec& spec, KvCache& cache, int32_t layer, TensorView out) {
  const int32_t shared = spec.value_heads / spec.key_heads;
  for_head_rows(batch, cache, layer, [&](int32_t h, HeadState& state, int32_t row) {
    const float* const q = qkv.row<float>(row) + int64_t{h / shared} * spec.key_dim;
    const float* const k = q + spec.key_columns();
    const float* const v =
        qkv.row<float>(row) + 2 * spec.key_columns() + int64_t{h} * spec.value_dim;
    const double decay = gates.row<float>(row)[h];
    const double beta = gates.row<float>(row)[spec.value_heads + h];
    float* const o = out.row<float>(row) + int64_t{h} * spec.value_dim;
    for (int32_t j = 0; j < spec.value_dim; ++j) {
      const double r = decay * state.read(k, j);
      state.write(decay, k, beta * (v[j] - r), j);
      o[j] = static_cast<float>(state.read(q, j));
    }
  });
}

void reference_ssm_scan(const StepBatch& batch, const ScanArgs& args, KvCache& cache, int32_t layer,
                        TensorView out) {
  const ScanSpec& spec = args.spec;
  const int32_t shared = spec.heads / spec.groups;
  for_head_rows(batch, cache, layer, [&](int32_t h, HeadState& state, int32_t row) {
    const float* const x = args.xbc.row<float>(row) + int64_t{h} * spec.head_dim;
    const float* const b =
        args.xbc.row<float>(row) + spec.x_columns() + int64_t{h / shared} * spec.state_dim;
    const float* const c = b + int64_t{spec.groups} * spec.state_dim;
    const double dt = static_cast<double>(args.dt.row<float>(row)[h]) +
                      static_cast<double>(args.dt_bias.as<float>()[h]);
    const double t = std::min(std::max(softplus(dt), double{spec.dt_min}), double{spec.dt_max});
    const double decay = std::exp(-std::exp(static_cast<double>(args.a_log.as<float>()[h])) * t);
    const double skip = args.skip.as<float>()[h];
    float* const y = out.row<float>(row) + int64_t{h} * spec.head_dim;
    for (int32_t j = 0; j < spec.head_dim; ++j) {
      state.write(decay, b, t * x[j], j);
      y[j] = static_cast<float>(state.read(c, j) + skip * x[j]);
    }
  });
}

void reference_gated_norm(TensorView x, TensorView gate, TensorView weight,
                          const GatedNormSpec& spec, TensorView out) {
  const auto open = [&spec](double g) {
    return spec.gate == GatedNormSpec::Gate::kSilu ? g * sigmoid(g) : sigmoid(g);
  };
  const int64_t group = spec.group;
  const bool repeats = weight.shape.elements() == group;
  std::vector<double> values(static_cast<size_t>(group));
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t first = 0; first < x.cols(); first += group) {
      const float* const g = gate.row<float>(i) + first;
      double squares = 0.0;
      for (int64_t j = 0; j < group; ++j) {
        double& value = values[static_cast<size_t>(j)];
        value = x.row<float>(i)[first + j];
        if (spec.gate_first) value *= open(g[j]);
        squares += value * value;
      }
      const double factor =
          1.0 / std::sqrt(squares / static_cast<double>(group) + static_cast<double>(spec.eps));
      for (int64_t j = 0; j < group; ++j) {
        const double scale = weight.as<float>()[repeats ? j : first + j];
        const double normal = values[static_cast<size_t>(j)] * factor * scale;
        out.row<float>(i)[first + j] =
            static_cast<float>(spec.gate_first ? normal : normal * open(g[j]));
      }
    }
  }
}

void reference_multiply(TensorView a, TensorView b, TensorView out) {
  for (int64_t i = 0; i < out.rows(); ++i) {
    for (int64_t j = 0; j < out.cols(); ++j) {
      out.row<float>(i)[j] = a.row<float>(i)[j] * b.row<float>(i)[j];
    }
  }
}

}  // namespace headrace
