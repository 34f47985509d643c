#pragma once

// A cache with one layer that keeps a state, and steps of slices on it.

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/host/array_kv_cache.h"
#include "parity/parity.h"

namespace headrace::parity {

/// Layer 0 keeps a state and a second layer keys and values.
inline CacheLayout state_layout(const StateRows& rows) {
  CacheLayout layout;
  layout.block_size = 16;
  layout.groups = {{kv_rows(1, 16, DType::kF32), 1}};
  layout.layers = {{-1, 0}, {0, 0}};
  layout.states = {rows, {}};
  return layout;
}

/// Rows of a sequence in a step, and its slots.
struct Slice {
  int32_t num_rows = 1;
  int32_t state_in = kZeroState, state_out = 0;
  std::vector<StateSave> saves = {};
};

/// A backend, and a cache of its own with these states.
class StateBench {
 public:
  StateBench(const std::string& isa, const StateRows& rows, int32_t num_slots, int32_t threads = 2)
      : backend(make_cpu_backend({.num_threads = isa == "reference" ? 0 : threads, .isa = isa})),
        cache(backend->make_kv_cache(state_layout(rows), 1, num_slots)) {}

  /// Returns the number of rows.
  int64_t begin(std::span<const Slice> slices) {
    seqs_.clear();
    int32_t rows = 0;
    for (const Slice& slice : slices) {
      SeqSlice seq;
      seq.first_row = rows;
      seq.num_rows = slice.num_rows;
      seq.state_in = slice.state_in;
      seq.state_out = slice.state_out;
      seq.saves = slice.saves;
      seqs_.push_back(seq);
      rows += slice.num_rows;
    }
    ids_.assign(static_cast<size_t>(rows), 0);
    StepBatch batch{ids_, ids_, ids_, seqs_, {}};
    batch.cache = cache.get();
    backend->begin_step(batch);
    return rows;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<KvCache> cache;

 private:
  std::vector<int32_t> ids_;
  std::vector<SeqSlice> seqs_;
};

/// Layer 0's states in a slot: matrices [head][key_dim][value_dim], then the window.
inline std::vector<float> state_numbers(const StateBench& bench, int32_t slot) {
  const StateRows& rows = bench.cache->layout().state(0);
  const auto& slots = dynamic_cast<const ArrayKvCache&>(*bench.cache);
  // Blocks of 16 columns; the reference has whole rows.
  const int64_t values = rows.value_dim;
  const int64_t width = bench.backend->device_info().isa == "reference" ? values : 16;
  std::vector<float> out;
  for (int64_t h = 0; h < rows.heads; ++h) {
    const float* const matrix = slots.matrices(0, slot) + h * state_matrix_numbers(rows);
    for (int64_t i = 0; i < rows.key_dim; ++i) {
      for (int64_t j = 0; j < values; ++j) {
        out.push_back(matrix[(j / width * rows.key_dim + i) * width + j % width]);
      }
    }
  }
  const float* const window = slots.window(0, slot);
  out.insert(out.end(), window, window + int64_t{rows.window} * rows.channels);
  return out;
}

/// Every number of layer 0's states in a slot, padding included.
inline void fill_slot(StateBench& bench, int32_t slot, float value) {
  const auto& slots = dynamic_cast<const ArrayKvCache&>(*bench.cache);
  const size_t bytes = bench.backend->state_slot_bytes(bench.cache->layout());
  std::fill_n(slots.matrices(0, slot), bytes / sizeof(float), value);
}

/// An op with a state: its layer's state, numbers that each row reads, and what it makes of rows.
class StateOp {
 public:
  virtual ~StateOp() = default;
  virtual StateRows states() const = 0;
  virtual int64_t in_columns() const = 0;
  virtual int64_t out_columns() const = 0;
  /// Numbers of rows as the op takes them.
  virtual std::vector<float> draw(Random& random, int64_t rows) const = 0;
  /// Layer 0 of the step just begun. x [T, in_columns()].
  virtual void run(StateBench& bench, TensorView x, TensorView out) const = 0;

  /// The rows of a step of `slices`.
  std::vector<float> step(StateBench& bench, std::span<const Slice> slices,
                          const std::vector<float>& x) const {
    const int64_t rows = bench.begin(slices);
    const Matrix in(*bench.backend, rows, in_columns(), x);
    const Matrix out(*bench.backend, rows, out_columns());
    run(bench, in.view(), out.view());
    return out.values();
  }
};

/// x‖gates of a row are qkv and then 2 * value_heads gates.
class DeltaOp final : public StateOp {
 public:
  explicit DeltaOp(const DeltaSpec& spec) : spec_(spec) {}
  const DeltaSpec& spec() const { return spec_; }
  StateRows states() const override {
    return {.heads = spec_.value_heads, .key_dim = spec_.key_dim, .value_dim = spec_.value_dim};
  }
  int64_t in_columns() const override { return spec_.qkv_columns() + 2 * spec_.value_heads; }
  int64_t out_columns() const override { return spec_.value_columns(); }
  std::vector<float> draw(Random& random, int64_t rows) const override;
  void run(StateBench& bench, TensorView x, TensorView out) const override {
    bench.backend->delta_rule(x.columns(0, spec_.qkv_columns()),
                              x.columns(spec_.qkv_columns(), 2 * spec_.value_heads), spec_,
                              *bench.cache, 0, out);
  }

 private:
  DeltaSpec spec_;
};

/// Heads of unit length, decays from e^-6 to 1, betas from 0 to 1.
inline std::vector<float> DeltaOp::draw(Random& random, int64_t rows) const {
  std::vector<float> out;
  for (int64_t i = 0; i < rows; ++i) {
    for (int32_t h = 0; h < 2 * spec_.key_heads; ++h) {
      auto head = random.uniforms(spec_.key_dim);
      double squares = 0.0;
      for (const float x : head) squares += double{x} * double{x};
      const double scale = h < spec_.key_heads ? std::sqrt(double(spec_.key_dim)) : 1.0;
      for (float& x : head) x = static_cast<float>(x / (std::sqrt(squares) * scale));
      out.insert(out.end(), head.begin(), head.end());
    }
    const auto values = random.uniforms(spec_.value_columns(), -2.0f, 2.0f);
    out.insert(out.end(), values.begin(), values.end());
    for (int32_t h = 0; h < spec_.value_heads; ++h) {
      // Each head forgets at its own speed.
      out.push_back(std::exp(-random.uniform(0.0f, h % 3 == 0 ? 6.0f : h % 3 == 1 ? 0.3f : 0.01f)));
    }
    for (int32_t h = 0; h < spec_.value_heads; ++h) out.push_back(random.uniform(0.0f, 1.0f));
  }
  return out;
}

/// x‖dt of a row: xbc, and then a dt for each head.
class ScanOp final : public StateOp {
 public:
  explicit ScanOp(const ScanSpec& spec) : spec_(spec) {
    Random random(7);
    a_log_ = random.uniforms(spec.heads, -1.0f, 1.5f);
    dt_bias_ = random.uniforms(spec.heads, -3.0f, 0.5f);
    skip_ = random.uniforms(spec.heads);
  }
  StateRows states() const override {
    return {.heads = spec_.heads, .key_dim = spec_.state_dim, .value_dim = spec_.head_dim};
  }
  int64_t in_columns() const override { return spec_.xbc_columns() + spec_.heads; }
  int64_t out_columns() const override { return spec_.x_columns(); }
  std::vector<float> draw(Random& random, int64_t rows) const override {
    return random.uniforms(rows * in_columns());
  }
  void run(StateBench& bench, TensorView x, TensorView out) const override {
    const Matrix a_log(*bench.backend, 1, spec_.heads, a_log_);
    const Matrix dt_bias(*bench.backend, 1, spec_.heads, dt_bias_);
    const Matrix skip(*bench.backend, 1, spec_.heads, skip_);
    const ScanArgs args{.xbc = x.columns(0, spec_.xbc_columns()),
                        .dt = x.columns(spec_.xbc_columns(), spec_.heads),
                        .a_log = a_log.vector(),
                        .dt_bias = dt_bias.vector(),
                        .skip = skip.vector(),
                        .spec = spec_};
    bench.backend->ssm_scan(args, *bench.cache, 0, out);
  }
  /// What a head makes of a row's dt, in double.
  struct Gate {
    double time, decay;
  };
  Gate gate(int32_t h, float dt) const {
    const double opened = std::log1p(std::exp(double{dt} + double{dt_bias_[size_t(h)]}));
    const double time = std::min(std::max(opened, double{spec_.dt_min}), double{spec_.dt_max});
    return {time, std::exp(-std::exp(double{a_log_[size_t(h)]}) * time)};
  }
  double skip(int32_t h) const { return skip_[size_t(h)]; }

 private:
  ScanSpec spec_;
  std::vector<float> a_log_, dt_bias_, skip_;
};

/// The rows have columns that the convolution doesn't read, on both sides.
class ConvOp final : public StateOp {
 public:
  ConvOp(const ConvSpec& spec, bool bias) : spec_(spec) {
    Random random(8);
    weight_ = random.uniforms(int64_t{spec.channels} * spec.kernel);
    if (bias) bias_ = random.uniforms(spec.channels);
  }
  static constexpr int32_t kFirst = 2;
  double tap(int32_t c, int32_t j) const { return weight_[size_t(j * spec_.channels + c)]; }
  double bias(int32_t c) const { return bias_.empty() ? 0.0 : double{bias_[size_t(c)]}; }
  StateRows states() const override {
    return {.channels = spec_.channels, .window = spec_.kernel - 1};
  }
  int64_t in_columns() const override { return spec_.channels + kFirst + 1; }
  int64_t out_columns() const override { return spec_.channels; }
  std::vector<float> draw(Random& random, int64_t rows) const override {
    return random.uniforms(rows * in_columns());
  }
  void run(StateBench& bench, TensorView x, TensorView out) const override {
    const Matrix weight(*bench.backend, spec_.kernel, spec_.channels, weight_);
    const Matrix bias(*bench.backend, 1, spec_.channels,
                      bias_.empty() ? std::vector<float>(size_t(spec_.channels)) : bias_);
    bench.backend->causal_conv(x.columns(kFirst, spec_.channels), weight.view(),
                               bias_.empty() ? TensorView{} : bias.vector(), spec_, *bench.cache, 0,
                               out);
  }

 private:
  ConvSpec spec_;
  std::vector<float> weight_, bias_;
};

}  // namespace headrace::parity
