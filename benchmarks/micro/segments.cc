// segment_attention at the shapes of published vision towers, as shares of the peaks measured in
// the same run.
//
//   micro_segments [ISA] [THREADS] [smoke]
//
// Operations are 4 * d for each pair of a query and a key that it sees, of each head. Queries, keys
// and values lie as a linear leaves them, rows of all three side by side. Medians of passes. The
// row-wise ops of a tower come behind: bytes a second, of the read bandwidth.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "peaks.h"

namespace headrace::bench {
namespace {

/// Patches of one item, in segments of `segment` rows.
struct Shape {
  const char* name;
  int32_t rows, segment, heads, head_dim;
};

constexpr Shape kShapes[] = {
    {"Qwen2.5-VL, 448 x 448, all", 1024, 1024, 16, 80},
    {"Qwen2.5-VL, 448 x 448, windows", 1024, 64, 16, 80},
    {"Qwen2.5-VL, 1092 x 1932, all", 10764, 10764, 16, 80},
    {"Qwen2.5-VL, 1092 x 1932, windows", 10764, 64, 16, 80},
    {"Qwen3-VL, 1024 x 1024, all", 4096, 4096, 16, 72},
    {"24 frames of 448 x 448", 12288, 1024, 16, 64},
};
constexpr Shape kSmoke = {"smoke", 130, 64, 2, 72};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds of `run`, each behind a `prepare`: the median of as many passes as fit into about
/// `budget` seconds, at least 3.
template <class Prepare, class Run>
double seconds_of(double budget, const Prepare& prepare, const Run& run) {
  prepare();
  run();
  std::vector<double> times;
  const double start = now();
  while (times.size() < 3 || (now() - start < budget && times.size() < 99)) {
    prepare();
    const double before = now();
    run();
    times.push_back(now() - before);
  }
  return median(times);
}

class Bench {
 public:
  Bench(const std::string& isa, int threads, double budget)
      : backend_(make_cpu_backend({.num_threads = threads, .isa = isa})),
        peak_(f32_peak(threads)),
        bf16_peak_(bf16_peak(threads)),
        budget_(budget) {
    std::printf("%s; peak %.0f GFLOP/s f32, %.0f bf16\n",
                backend_->device_info().description.c_str(), peak_ * 1e-9, bf16_peak_ * 1e-9);
  }

  void attend(const Shape& shape) {
    const int64_t cols = int64_t{shape.heads} * shape.head_dim;
    const Tensor qkv(*backend_, shape.rows, 3 * cols), out(*backend_, shape.rows, cols);
    std::vector<int32_t> ends;
    double pairs = 0.0;
    for (int32_t start = 0; start < shape.rows; start = ends.back()) {
      ends.push_back(std::min(shape.rows, start + shape.segment));
      pairs += std::pow(ends.back() - start, 2);
    }
    SegmentAttention args{.q = qkv.view.columns(0, cols),
                          .k = qkv.view.columns(cols, cols),
                          .v = qkv.view.columns(2 * cols, cols),
                          .segment_ends = ends,
                          .heads = shape.heads,
                          .head_dim = shape.head_dim,
                          .scale = 1.0f / std::sqrt(float(shape.head_dim)),
                          .out = out.view};
    for (const DType products : {DType::kF32, DType::kBF16}) {
      args.products = products;
      const double seconds = seconds_of(budget_, [] {}, [&] { backend_->segment_attention(args); });
      const double rate = 4.0 * pairs * double(cols) / seconds;
      std::printf("%-34s %-4s %9.2f ms, %5.0f GFLOP/s, %3.0f %% of f32 peak, %3.0f %% of bf16\n",
                  shape.name, products == DType::kF32 ? "f32" : "bf16", seconds * 1e3, rate * 1e-9,
                  100 * rate / peak_, 100 * rate / bf16_peak_);
    }
  }

  /// Each over `rows` rows that no cache of the CPU holds, if they are many.
  void go_over_rows(int threads, int64_t rows) {
    constexpr int64_t kCols = 1280, kInner = 5120;
    ReadProbe probe(threads, size_t{1} << 28);
    const Tensor x(*backend_, rows, kInner), vector(*backend_, 1, kCols),
        table(*backend_, rows, 80);
    const TensorView narrow = x.view.columns(0, kCols);
    const TensorView weight(vector.view.data, DType::kF32, {kCols});
    const Tensor fresh(*backend_, rows, kInner);
    // What an op makes of its own results comes closer to 0 each time, where arithmetic is slow.
    const auto refill = [&] {
      backend_->upload(fresh.memory.data, x.memory.data, fresh.memory.bytes);
    };
    const auto report = [&](const char* name, int64_t cols, const auto& run) {
      const double seconds = seconds_of(budget_, refill, run), bytes = 8.0 * double(rows * cols);
      std::printf("%-12s %5ld x %4ld %9.2f ms, %5.1f GB/s, %3.0f %% of read bandwidth\n", name,
                  long(rows), long(cols), seconds * 1e3, bytes / seconds * 1e-9,
                  100 * bytes / seconds / probe.bytes_per_second(1));
    };
    report("layer_norm", kCols,
           [&] { backend_->layer_norm(narrow, weight, weight, 1e-6f, narrow); });
    report("rotate", kCols, [&] { backend_->rotate(narrow, table.view, 16, 80); });
    constexpr const char* kNames[] = {"silu", "gelu_erf", "gelu_tanh", "quick_gelu"};
    for (int kind = 0; kind < 4; ++kind) {
      report(kNames[kind], kInner,
             [&] { backend_->activate(static_cast<Activation>(kind), x.view); });
    }
  }

 private:
  struct Tensor {
    Backend::Buffer memory;
    TensorView view;
    Tensor(Backend& backend, int64_t rows, int64_t cols)
        : memory(backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float))),
          view(memory.data, DType::kF32, {rows, cols}) {
      auto* const numbers = static_cast<float*>(memory.data);
      uint32_t state = 1;
      for (int64_t i = 0; i < rows * cols; ++i) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
      }
    }
  };

  std::unique_ptr<Backend> backend_;
  double peak_, bf16_peak_;
  double budget_;  ///< seconds for each figure
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const bool smoke = std::string(argc > 1 ? argv[argc - 1] : "") == "smoke";
  const std::string isa =
      argc > 1 && !(smoke && argc == 2) ? argv[1] : headrace::available_cpu_isas().front();
  const int threads = argc > 2 + smoke ? std::max(1, std::atoi(argv[2])) : default_threads;
  Bench bench(isa, threads, smoke ? 0.0 : 2.0);
  if (smoke) {
    bench.attend(kSmoke);
    bench.go_over_rows(threads, 8);
    return 0;
  }
  for (const Shape& shape : kShapes) bench.attend(shape);
  bench.go_over_rows(threads, 4096);
  return 0;
}
