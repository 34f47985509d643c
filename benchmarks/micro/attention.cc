// rope_kv_write and attention at the shapes of published models, as shares of the limits measured
// in the same run.
//
//   micro_attention [ISA] [THREADS] [DTYPE] [SHAPE]
//
// decode: one row a layer over a long context, through as many layers as make the caches larger
// than any cache of the CPU: bytes of keys and values (with their scales) a second, against a plain
// loop that reads as much before and after each pass (the share is the median over passes), and
// operations a second.
// prefill: a chunk at the end of a context: operations (2 products of every visible pair) a second.
// Operations are compared with the peak of float32 multiply-adds and of bf16 dot products, which
// is also that of products of int16.

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

struct HeadShape {
  const char* name;
  int32_t num_heads, num_kv_heads, head_dim;
};

constexpr HeadShape kShapes[] = {
    {"Qwen2-0.5B", 14, 2, 64}, {"ERNIE-4.5-0.3B", 16, 2, 128}, {"Llama-3.2-1B", 32, 8, 64}};
constexpr int32_t kBlockSize = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A cache of one sequence, filled to `context` tokens in every layer.
class Sequence {
 public:
  Sequence(Backend& backend, const HeadShape& shape, DType dtype, int32_t layers, int32_t context)
      : backend_(backend), shape_(shape), layers_(layers) {
    const int32_t blocks = context / kBlockSize + 1;
    cache_ = backend.make_kv_cache(
        CacheLayout::uniform(layers, kv_rows(shape.num_kv_heads, shape.head_dim, dtype),
                             kBlockSize),
        blocks);
    for (int32_t b = 0; b < blocks; ++b) table_.push_back(b);
    qkv_.resize(static_cast<size_t>(kMaxRows * width()));
    uint32_t state = 1;
    for (float& x : qkv_) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    }
    out_.resize(static_cast<size_t>(kMaxRows) * q_width());
    cos_sin_.resize(static_cast<size_t>(kMaxRows) * shape.head_dim, 0.7f);
    for (int32_t start = 0; start < context; start += kMaxRows) {
      begin(start, std::min(kMaxRows, context - start));
      for (int32_t layer = 0; layer < layers; ++layer) write(layer);
    }
  }

  /// One step of `rows` rows at `start`. Returns the seconds that the op took over all layers.
  double attend_seconds(int32_t start, int32_t rows) {
    begin(start, rows);
    const AttentionSpec spec{shape_.num_heads, shape_.num_kv_heads, shape_.head_dim, 0.125f, 0};
    const TensorView q = input().columns(0, q_width());
    const TensorView out(out_.data(), DType::kF32, {rows_, q_width()});
    const double before = now();
    for (int32_t layer = 0; layer < layers_; ++layer) {
      backend_.attention(q, spec, *cache_, layer, out);
    }
    return now() - before;
  }
  double write_seconds(int32_t start, int32_t rows) {
    begin(start, rows);
    const double before = now();
    for (int32_t layer = 0; layer < layers_; ++layer) write(layer);
    return now() - before;
  }

 private:
  static constexpr int32_t kMaxRows = 512;

  int64_t q_width() const { return static_cast<int64_t>(shape_.num_heads) * shape_.head_dim; }
  int64_t width() const { return q_width() + 2 * shape_.num_kv_heads * shape_.head_dim; }
  TensorView input() { return {qkv_.data(), DType::kF32, {rows_, width()}}; }

  void begin(int32_t start, int32_t rows) {
    rows_ = rows;
    positions_.clear();
    for (int32_t i = 0; i < rows; ++i) positions_.push_back(start + i);
    seq_ = {0, rows, start, table_};
    StepBatch batch{positions_, positions_, positions_, {&seq_, 1}, {}};
    batch.cache = cache_.get();
    backend_.begin_step(batch);
  }
  void write(int32_t layer) {
    const QkvSpec heads{shape_.num_heads, shape_.num_kv_heads, shape_.head_dim, {}, {}, 1e-6f};
    RopeSpec rope;
    rope.rotary_dim = shape_.head_dim;
    backend_.rope_kv_write(input(), heads, rope,
                           {cos_sin_.data(), DType::kF32, {rows_, shape_.head_dim}}, *cache_,
                           layer);
  }

  Backend& backend_;
  HeadShape shape_;
  int32_t layers_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> table_, positions_;
  std::vector<float> qkv_, out_, cos_sin_;
  SeqSlice seq_;
  int64_t rows_ = 0;
};

class Bench {
 public:
  Bench(const std::string& isa, int threads, const std::string& dtype, const std::string& shape)
      : backend_(make_cpu_backend({.num_threads = threads, .isa = isa})),
        dtype_(dtype),
        shape_(shape),
        peak_(f32_peak(threads)),
        bf16_peak_(bf16_peak(threads)),
        probe_(threads, size_t{1} << 30) {}

  void run() {
    std::printf("%s; peak %.0f GFLOP/s f32, %.0f bf16\n",
                backend_->device_info().description.c_str(), peak_ * 1e-9, bf16_peak_ * 1e-9);
    for (const HeadShape& shape : kShapes) {
      if (!shape_.empty() && shape_ != shape.name) continue;
      for (const DType dtype :
           {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4, DType::kF32}) {
        if (!dtype_.empty() && dtype_ != dtype_name(dtype)) continue;
        for (const int32_t context : {512, 8192}) decode(shape, dtype, context);
        for (const int32_t context : {512, 8192}) prefill(shape, dtype, context);
      }
    }
  }

 private:
  void decode(const HeadShape& shape, DType dtype, int32_t context) {
    const CacheLayout block =
        CacheLayout::uniform(1, kv_rows(shape.num_kv_heads, shape.head_dim, dtype), kBlockSize);
    const double layer_bytes =
        static_cast<double>(backend_->kv_block_bytes(block)) * context / kBlockSize;
    const auto layers = static_cast<int32_t>(std::ceil(256e6 / layer_bytes));
    Sequence sequence(*backend_, shape, dtype, layers, context);
    sequence.write_seconds(context - 1, 1);
    std::vector<double> shares, rates, writes;
    for (int pass = 0; pass < 9; ++pass) {
      const double before = probe_.bytes_per_second(1);
      const double seconds = sequence.attend_seconds(context - 1, 1);
      const double limit = 0.5 * (before + probe_.bytes_per_second(1));
      rates.push_back(layer_bytes * layers / seconds);
      shares.push_back(rates.back() / limit);
      writes.push_back(sequence.write_seconds(context - 1, 1) / layers);
    }
    const double work = 4.0 * context * shape.num_heads * shape.head_dim * layers;
    const double rate = work * median(rates) / (layer_bytes * layers);
    std::printf(
        "%-15s %-8s decode  %5d: %5.1f GB/s, %3.0f %% of read bandwidth; %3.0f GFLOP/s, %3.0f %% "
        "of "
        "bf16 peak; write %.1f us\n",
        shape.name, dtype_name(dtype), context, median(rates) * 1e-9, 100 * median(shares),
        rate * 1e-9, 100 * rate / bf16_peak_, median(writes) * 1e6);
  }

  void prefill(const HeadShape& shape, DType dtype, int32_t context) {
    constexpr int32_t kRows = 512, kLayers = 2;
    Sequence sequence(*backend_, shape, dtype, kLayers, context);
    std::vector<double> times, writes;
    for (int pass = 0; pass < 7; ++pass) {
      writes.push_back(sequence.write_seconds(context - kRows, kRows) / kLayers);
      times.push_back(sequence.attend_seconds(context - kRows, kRows) / kLayers);
    }
    const double pairs = kRows * (context - kRows + (kRows + 1) / 2.0);
    const double work = 4.0 * pairs * shape.num_heads * shape.head_dim;
    const double rate = work / median(times);
    std::printf(
        "%-15s %-8s prefill %5d: %5.0f GFLOP/s, %3.0f %% of f32 peak, %3.0f %% of bf16; "
        "write %.0f us\n",
        shape.name, dtype_name(dtype), context, rate * 1e-9, 100 * rate / peak_,
        100 * rate / bf16_peak_, median(writes) * 1e6);
  }

  std::unique_ptr<Backend> backend_;
  std::string dtype_, shape_;  ///< empty: all
  double peak_, bf16_peak_;
  ReadProbe probe_;
};

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::string isa = argc > 1 ? argv[1] : headrace::available_cpu_isas().front();
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : default_threads;
  const std::string dtype = argc > 3 ? argv[3] : "", shape = argc > 4 ? argv[4] : "";
  headrace::bench::Bench(isa, threads, dtype, shape).run();
  return 0;
}
