// Ops of layers with a state at the shapes of published models.
//
//   micro_states [ISA] [THREADS]
//   micro_states smoke
//
// decode: one row a layer through as many layers as make their states larger than any cache of the
// CPU: bytes of states read and written a second, against scaling an array of as many bytes in
// place before and after each pass (the share is the median over passes).
// prefill: a slice of 512 rows: time a row, a block of 16 columns and a thread; cycles are those of
// a chain of multiplications that ran just before.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace headrace::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Cycles a second of this core: a multiplication takes 3.
double clock_rate() {
  constexpr int kSteps = 1 << 20;
  uint64_t x = 3;
  const double before = now();
  for (int i = 0; i < kSteps; ++i) asm volatile("imul %0, %0" : "+r"(x));
  return 3.0 * kSteps / (now() - before);
}

struct Matrix {
  Matrix(Backend& backend, int64_t rows, int64_t cols, float low, float high)
      : buffer(backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float))),
        view(buffer.data, DType::kF32, {rows, cols}) {
    uint32_t state = 1;
    for (int64_t i = 0; i < rows * cols; ++i) {
      state = state * 1664525u + 1013904223u;
      view.as<float>()[i] = low + (high - low) * static_cast<float>(state >> 8) * 0x1p-24f;
    }
  }
  Backend::Buffer buffer;
  TensorView view;
};

constexpr int32_t kPrefillRows = 512;

/// An op on a layer of a cache. Matrices have kPrefillRows rows, of which a step takes the first.
class Op {
 public:
  virtual ~Op() = default;
  virtual StateRows states() const = 0;
  virtual void run(Backend& backend, KvCache& cache, int32_t layer, int64_t rows) const = 0;
};

class Delta final : public Op {
 public:
  explicit Delta(Backend& backend) : backend_(backend) {}
  StateRows states() const override {
    return {.heads = spec_.value_heads, .key_dim = spec_.key_dim, .value_dim = spec_.value_dim};
  }
  void run(Backend& backend, KvCache& cache, int32_t layer, int64_t rows) const override {
    backend.delta_rule(qkv_.view.first_rows(rows), gates_.view.first_rows(rows), spec_, cache,
                       layer, out_.view.first_rows(rows));
  }

 private:
  Backend& backend_;
  DeltaSpec spec_{16, 32, 128, 128};
  Matrix qkv_{backend_, kPrefillRows, spec_.qkv_columns(), -0.1f, 0.1f};
  Matrix gates_{backend_, kPrefillRows, 2 * spec_.value_heads, 0.5f, 1.0f};
  Matrix out_{backend_, kPrefillRows, spec_.value_columns(), 0.0f, 1.0f};
};

class Scan final : public Op {
 public:
  explicit Scan(Backend& backend) : backend_(backend) {}
  StateRows states() const override {
    return {.heads = spec_.heads, .key_dim = spec_.state_dim, .value_dim = spec_.head_dim};
  }
  void run(Backend& backend, KvCache& cache, int32_t layer, int64_t rows) const override {
    const TensorView heads(heads_.view.data, DType::kF32, {spec_.heads});
    const ScanArgs args{
        xbc_.view.first_rows(rows), dt_.view.first_rows(rows), heads, heads, heads, spec_};
    backend.ssm_scan(args, cache, layer, out_.view.first_rows(rows));
  }

 private:
  Backend& backend_;
  ScanSpec spec_{64, 8, 64, 128, 0.0f, std::numeric_limits<float>::infinity()};
  Matrix xbc_{backend_, kPrefillRows, spec_.xbc_columns(), -0.1f, 0.1f};
  Matrix dt_{backend_, kPrefillRows, spec_.heads, -3.0f, 0.0f};
  Matrix heads_{backend_, 1, spec_.heads, -1.0f, 1.0f};
  Matrix out_{backend_, kPrefillRows, spec_.x_columns(), 0.0f, 1.0f};
};

class Conv final : public Op {
 public:
  explicit Conv(Backend& backend) : backend_(backend) {}
  StateRows states() const override {
    return {.channels = spec_.channels, .window = spec_.kernel - 1};
  }
  void run(Backend& backend, KvCache& cache, int32_t layer, int64_t rows) const override {
    backend.causal_conv(x_.view.first_rows(rows), weight_.view, {}, spec_, cache, layer,
                        out_.view.first_rows(rows));
  }

 private:
  Backend& backend_;
  ConvSpec spec_{8192, 4, true};
  Matrix x_{backend_, kPrefillRows, spec_.channels, -1.0f, 1.0f};
  Matrix weight_{backend_, spec_.kernel, spec_.channels, -1.0f, 1.0f};
  Matrix out_{backend_, kPrefillRows, spec_.channels, 0.0f, 1.0f};
};

class Bench {
 public:
  Bench(const std::string& isa, int threads, bool smoke)
      : backend_(make_cpu_backend({.num_threads = threads, .isa = isa})),
        threads_(threads),
        layers_bytes_(smoke ? 1e6 : 256e6),
        passes_(smoke ? 1 : 15) {}

  void run() {
    std::printf("%s\n", backend_->device_info().description.c_str());
    decode("delta_rule 32 x 128 x 128", Delta(*backend_));
    decode("ssm_scan 64 x 128 x 64", Scan(*backend_));
    prefill("delta_rule 32 x 128 x 128", Delta(*backend_));
    prefill("ssm_scan 64 x 128 x 64", Scan(*backend_));
    prefill("causal_conv 8192 x 4", Conv(*backend_));
  }

 private:
  std::unique_ptr<KvCache> make_cache(const StateRows& rows, int32_t layers) {
    CacheLayout layout = CacheLayout::uniform(1, kv_rows(1, 16, DType::kF32), 16);
    layout.layers.resize(static_cast<size_t>(layers), {-1, 0});
    layout.states.assign(static_cast<size_t>(layers), rows);
    return backend_->make_kv_cache(layout, 1, 1);
  }

  /// Seconds of a step of `rows` rows, over all layers.
  double seconds(const Op& op, KvCache& cache, int32_t rows, int32_t state_in) {
    const std::vector<int32_t> ids(static_cast<size_t>(rows), 0);
    SeqSlice seq;
    seq.num_rows = rows;
    seq.state_in = state_in;
    seq.state_out = 0;
    StepBatch batch{ids, ids, ids, {&seq, 1}, {}};
    batch.cache = &cache;
    backend_->begin_step(batch);
    const double before = now();
    for (int32_t layer = 0; layer < cache.layout().num_layers(); ++layer) {
      op.run(*backend_, cache, layer, rows);
    }
    return now() - before;
  }

  void decode(const char* name, const Op& op) {
    const auto bytes = 4.0 * static_cast<double>(op.states().numbers());
    const auto layers = static_cast<int32_t>(std::ceil(layers_bytes_ / bytes));
    const auto cache = make_cache(op.states(), layers);
    seconds(op, *cache, 1, kZeroState);
    constexpr int64_t kWidth = 8192;
    const Matrix array(*backend_, static_cast<int64_t>(bytes / 4.0) * layers / kWidth, kWidth, 0.0f,
                       1.0f);
    const auto scale = [&] {
      const double before = now();
      backend_->scale(array.view, 0.999f, array.view);
      return now() - before;
    };
    std::vector<double> shares, rates;
    for (int pass = 0; pass < passes_; ++pass) {
      const double before = scale();
      const double own = seconds(op, *cache, 1, 0);
      shares.push_back(0.5 * (before + scale()) / own);
      rates.push_back(2.0 * bytes * layers / own);
    }
    std::printf("%-26s decode : %5.1f GB/s read and written, %3.0f %% of scaling in place\n", name,
                median(rates) * 1e-9, 100 * median(shares));
  }

  void prefill(const char* name, const Op& op) {
    const auto cache = make_cache(op.states(), 1);
    const StateRows rows = op.states();
    const double blocks = rows.heads > 0 ? rows.heads * (rows.value_dim / 16) : rows.channels / 16;
    std::vector<double> times, cycles;
    for (int pass = 0; pass < passes_; ++pass) {
      const double clock = clock_rate();
      times.push_back(seconds(op, *cache, kPrefillRows, kZeroState) * threads_ /
                      (kPrefillRows * blocks));
      cycles.push_back(times.back() * clock);
    }
    std::printf("%-26s prefill: %5.1f ns (best %5.1f), %4.0f cycles a row, 16 columns and thread\n",
                name, median(times) * 1e9, *std::ranges::min_element(times) * 1e9, median(cycles));
  }

  std::unique_ptr<Backend> backend_;
  int threads_;
  double layers_bytes_;
  int passes_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  const bool smoke = argc > 1 && std::string(argv[1]) == "smoke";
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::string isa = argc > 1 && !smoke ? argv[1] : "";
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : default_threads;
  headrace::bench::Bench(isa, threads, smoke).run();
  return 0;
}
