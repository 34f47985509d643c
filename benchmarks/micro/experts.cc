// A layer's experts at the shapes of published models, as shares of the limits measured in the same
// run, and beside dense linears of the same active size.
//
//   micro_experts [ISA] [THREADS] [FORMAT] [MODEL] [ROWS]
//   micro_experts smoke             a tiny shape, to see that it runs
//
// FORMAT and MODEL: only those whose names hold this. ROWS: so many, not 1, 8, 512 and 2048.
//
// Rows choose experts at random, others in every pass. Bytes are those of the experts that some row
// uses, operations those of all pairs. The floor is what takes longer, reading the bytes at the
// speed of a plain loop before and after, or the operations at the instruction's peak. "dense" is
// linear_gate_mul() and linear() with a weight as large as a row's experts together: several of
// them take turns, so that each is read from memory. Both alternate; what is printed is the best
// and the median of the passes. "route" is the choice of experts that comes before.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "float4_codes.h"
#include "peaks.h"

namespace headrace::bench {
namespace {

struct Format {
  const char* name;
  DType storage;
  QuantFormat quant;
};

constexpr Format kFormats[] = {{"int4 g32", DType::kBF16, {.bits = 4, .group_size = 32}},
                               {"int8 g64", DType::kBF16, {.bits = 8, .group_size = 64}},
                               {"mxfp4", DType::kBF16, kFloat4Format},
                               {"bf16", DType::kBF16, {}}};

struct ModelShape {
  const char* name;
  int64_t hidden, experts, top_k, inner;
};

constexpr ModelShape kModels[] = {{"Qwen3-30B-A3B", 2048, 128, 8, 768},
                                  {"ERNIE-4.5-21B-A3B", 2560, 64, 6, 1536},
                                  {"gpt-oss-20b", 2880, 32, 4, 2880}};
constexpr ModelShape kSmoke = {"smoke", 64, 8, 2, 32};

constexpr int kPasses = 5, kDecodePasses = 25;
constexpr int64_t kFewRows = 64;                   ///< take several repeats and more passes
constexpr size_t kDenseBytes = size_t{300} << 20;  ///< of all dense weights: more than any cache

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_smoke(const ModelShape& model) { return model.hidden == kSmoke.hidden; }

struct Layer {
  std::unique_ptr<PackedWeight> gate_up, down;
  size_t bytes() const { return gate_up->bytes() + down->bytes(); }
};

/// A model's layer, and dense ones of its active size.
struct Model {
  std::unique_ptr<PackedWeight> router;
  Layer experts;
  std::vector<Layer> dense;
};

class Bench {
 public:
  Bench(const std::string& isa, int threads, size_t probe_bytes)
      : backend_(make_cpu_backend({.num_threads = threads, .isa = isa})),
        threads_(threads),
        probe_(threads, probe_bytes) {
    std::printf("%s\n", backend_->device_info().description.c_str());
  }

  void run(const ModelShape& model, const Format& format, const std::vector<int64_t>& rows) {
    Model weights{nullptr, pack(format, model.hidden, model.inner, model.experts), {}};
    size_t bytes = 0;
    do {
      weights.dense.push_back(pack(format, model.hidden, model.inner * model.top_k, 1));
      bytes += weights.dense.back().bytes();
    } while (bytes < kDenseBytes && !is_smoke(model));
    weights.router = backend_->pack_weight(
        {{{source_.data(), DType::kBF16, model.experts, model.hidden, false, model.hidden}},
         DType::kF32});
    for (const int64_t count : rows) measure(model, format, weights, count);
  }

 private:
  float noise() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(state_ >> 8) * 0x1p-24f - 0.5f;
  }

  /// All experts are of the same numbers.
  Layer pack(const Format& format, int64_t hidden, int64_t inner, int64_t experts) {
    const auto size = static_cast<size_t>(2 * inner * hidden);
    while (source_.size() < size) source_.push_back(f32_to_bf16(noise()));
    WeightSpec gate_up{{}, format.storage, WeightUse::kGateUp, format.quant};
    WeightSpec down{{}, format.storage, WeightUse::kLinear, format.quant};
    gate_up.experts = down.experts = static_cast<int32_t>(experts);
    for (int64_t e = 0; e < experts; ++e) {
      if (format.quant.float4) {
        gate_up.parts.push_back(float4_.part(2 * inner, hidden));
        down.parts.push_back(float4_.part(hidden, inner));
        continue;
      }
      gate_up.parts.push_back({source_.data(), DType::kBF16, 2 * inner, hidden, false, hidden});
      down.parts.push_back({source_.data(), DType::kBF16, hidden, inner, false, inner});
    }
    return {backend_->pack_weight(gate_up), backend_->pack_weight(down)};
  }

  TensorView matrix(std::vector<Backend::Buffer>& kept, DType dtype, int64_t rows, int64_t cols) {
    kept.push_back(backend_->allocate(static_cast<size_t>(rows * cols) * 4));
    return TensorView(kept.back().data, dtype, {rows, cols});
  }

  /// Random experts for each row; returns how many are used by some.
  int64_t choose(const ModelShape& model, const TensorView& ids) {
    std::set<int32_t> used;
    for (int64_t row = 0; row < ids.rows(); ++row) {
      std::set<int32_t> mine;
      while (static_cast<int64_t>(mine.size()) < model.top_k) {
        const auto id = static_cast<int64_t>((noise() + 0.5f) * static_cast<float>(model.experts));
        mine.insert(static_cast<int32_t>(id));
      }
      std::copy(mine.begin(), mine.end(), ids.row<int32_t>(row));
      used.insert(mine.begin(), mine.end());
    }
    return static_cast<int64_t>(used.size());
  }

  double peak(const Format& format) const {
    const std::string isa = backend_->device_info().isa;
    const bool bf16_dot = isa == "avx512_bf16", int8_dot = bf16_dot || isa == "avx512_vnni";
    const bool rounded = format.quant.bits != 0 && !format.quant.float4;
    if (rounded && int8_dot) return int8_peak(threads_);
    return bf16_dot && !rounded ? bf16_peak(threads_) : f32_peak(threads_);
  }

  /// What ops work on.
  struct Operands {
    TensorView x, out, inner, ids, weights;
    std::vector<Backend::Buffer> kept;
  };
  Operands operands(const ModelShape& model, int64_t rows) {
    Operands ops;
    ops.x = matrix(ops.kept, DType::kF32, rows, model.hidden);
    ops.out = matrix(ops.kept, DType::kF32, rows, model.hidden);
    ops.inner = matrix(ops.kept, DType::kF32, rows, model.inner * model.top_k);
    ops.ids = matrix(ops.kept, DType::kI32, rows, model.top_k);
    ops.weights = matrix(ops.kept, DType::kF32, rows, model.top_k);
    for (int64_t i = 0; i < rows * model.hidden; ++i) ops.x.as<float>()[i] = noise();
    return ops;
  }

  /// What some repeats did.
  struct Pass {
    double bytes = 0, dense_bytes = 0;
    double route_seconds = 0, seconds = 0, dense_seconds = 0;
  };
  Pass run_pass(const ModelShape& model, const Model& weights, const Operands& ops, int repeats) {
    const RouterSpec router{.num_experts = static_cast<int32_t>(model.experts),
                            .top_k = static_cast<int32_t>(model.top_k)};
    const Layer& layer = weights.experts;
    Pass pass;
    for (int i = 0; i < repeats; ++i) {
      double start = now();
      backend_->route(ops.x, *weights.router, {}, {}, router, ops.ids, ops.weights);
      pass.route_seconds += now() - start;
      const auto used = static_cast<double>(choose(model, ops.ids));
      pass.bytes += static_cast<double>(layer.bytes()) * used / static_cast<double>(model.experts);
      start = now();
      backend_->experts({ops.x, ops.ids, ops.weights, *layer.gate_up, *layer.down, ops.out});
      pass.seconds += now() - start;
      const Layer& other = weights.dense[turn_++ % weights.dense.size()];
      pass.dense_bytes += static_cast<double>(other.bytes());
      start = now();
      backend_->linear_gate_mul(ops.x, *other.gate_up, {}, {}, ops.inner);
      backend_->linear(ops.inner, *other.down, {}, ops.out);
      pass.dense_seconds += now() - start;
    }
    return pass;
  }

  void measure(const ModelShape& model, const Format& format, const Model& weights, int64_t rows) {
    const Operands ops = operands(model, rows);
    const double work = 6.0 * static_cast<double>(rows * model.top_k * model.hidden * model.inner);
    const int repeats = rows <= kFewRows ? 10 : 1;
    std::vector<double> times, routes, floors, of_bandwidth, dense_floors, ratios;
    for (int i = 0; i < (rows <= kFewRows ? kDecodePasses : kPasses); ++i) {
      const double before = probe_.bytes_per_second(1), limit_work = peak(format);
      const Pass pass = run_pass(model, weights, ops, repeats);
      const double limit = 0.5 * (before + probe_.bytes_per_second(1));
      const double least_work = repeats * work / limit_work;
      times.push_back(-1e6 * pass.seconds / repeats);
      routes.push_back(-1e6 * pass.route_seconds / repeats);
      floors.push_back(std::max(pass.bytes / limit, least_work) / pass.seconds);
      dense_floors.push_back(std::max(pass.dense_bytes / limit, least_work) / pass.dense_seconds);
      of_bandwidth.push_back(pass.bytes / limit / pass.seconds);
      ratios.push_back(pass.dense_seconds / pass.seconds);
    }
    std::printf("%-17s %-8s x%-4ld", model.name, format.name, static_cast<long>(rows));
    print(" route", "us", -1.0, routes);
    print(", experts", "us", -1.0, times);
    print(", of floor", "%", 100.0, floors);
    print(", of bandwidth", "%", 100.0, of_bandwidth);
    print(", dense of its floor", "%", 100.0, dense_floors);
    print(", of dense's speed", "%", 100.0, ratios);
    std::printf("\n");
    std::fflush(stdout);
  }

  /// The best and the median of values of which the largest is the best.
  static void print(const char* what, const char* unit, double factor, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::printf("%s %.0f, %.0f %s", what, factor * values.back(),
                factor * values[values.size() / 2], unit);
  }

  std::unique_ptr<Backend> backend_;
  int threads_;
  ReadProbe probe_;
  uint32_t state_ = 1;
  size_t turn_ = 0;
  std::vector<uint16_t> source_;
  Float4Codes float4_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const bool smoke = argc > 1 && std::string(argv[1]) == "smoke";
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : default_threads;
  const auto picks = [&](int at, const char* name) {
    return argc <= at || std::string(name).find(argv[at]) != std::string::npos;
  };
  try {
    const std::string isa = argc > 1 && !smoke ? argv[1] : headrace::available_cpu_isas().front();
    Bench bench(isa, smoke ? 2 : threads, smoke ? size_t{4} << 20 : size_t{512} << 20);
    for (const Format& format : kFormats) {
      if (smoke) bench.run(kSmoke, format, {1, 20});
      for (const ModelShape& model : kModels) {
        if (smoke || !picks(3, format.name) || !picks(4, model.name)) continue;
        bench.run(model, format,
                  argc > 5 ? std::vector<int64_t>{std::max(1, std::atoi(argv[5]))}
                           : std::vector<int64_t>{1, 8, 512, 2048});
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "micro_experts: %s\n", error.what());
    return 1;
  }
  return 0;
}
