#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "benchmarks/cuda/kernels/bench_kernels.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"
#include "cuda/kernels/attention/attention.h"

namespace headrace::bench {

namespace {

constexpr int32_t kBlockSize = 64;
constexpr int64_t kMostPartials = 1 << 14;

/// One layer's attention in a step of `sequences` that have `context` tokens, the last `rows` of
/// them new; `turns` caches of their own.
class AttentionRun {
 public:
  AttentionRun(BenchDevice& device, const ModelShape& model, int64_t sequences, int64_t context,
               int64_t rows, int turns, DType cache_dtype = DType::kBF16)
      : device_(device),
        cache_dtype_(cache_dtype),
        shape_{
            .num_heads = static_cast<int32_t>(model.heads),
            .num_kv_heads = static_cast<int32_t>(model.kv_heads),
            .head_dim = static_cast<int32_t>(model.head_dim),
            .long_rows = cuda::attention_long_rows(
                {DType::kBF16, cache_dtype, static_cast<int32_t>(model.head_dim), kBlockSize, 1.0f},
                device.traits().has_wgmma)},
        rows_(sequences * rows),
        blocks_((context + kBlockSize - 1) / kBlockSize),
        cache_rows_(sequences * blocks_ * layout().block_rows()),
        plan_(make_plan(sequences, context, rows)),
        tables_(device, make_tables(sequences)),
        counts_(device, std::vector<int32_t>{count(plan_.short_items), count(plan_.long_items)}),
        short_items_(device, plan_.short_items),
        long_items_(device, plan_.long_items),
        partials_(device, cuda::attention_partial_bytes(plan_.num_partials, shape_)),
        counters_(device, std::vector<int32_t>(cuda::attention_counter_bytes(sequences, shape_) /
                                               sizeof(int32_t))),
        q_(device, static_cast<size_t>(rows_ * width())),
        out_(device, static_cast<size_t>(rows_ * width())),
        keys_(device, static_cast<size_t>(turns * cache_rows_ * row_words())),
        values_(device, keys_.size()),
        key_scales_(device,
                    static_cast<size_t>(std::max<int64_t>(turns * cache_rows_ * scale_words(), 1))),
        value_scales_(device, key_scales_.size()) {
    uint32_t seed = 21;
    for (const DeviceArray<uint16_t>* numbers :
         {&q_, &keys_, &values_, &key_scales_, &value_scales_}) {
      fill_uniform(numbers->data(), static_cast<int64_t>(numbers->size()), seed++, device.stream());
    }
  }

  void launch(int turn) const {
    const int64_t caches = static_cast<int64_t>(keys_.size()) / (cache_rows_ * row_words());
    const int64_t first = turn % caches * cache_rows_;
    const int64_t cache = first * row_words(), scales = first * scale_words();
    const int32_t* const counts = counts_.data();
    cuda::attention({.dtype = DType::kBF16,
                     .cache_dtype = cache_dtype_,
                     .shape = shape_,
                     .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
                     .q = {q_.data(), rows_, width(), width()},
                     .out = {out_.data(), rows_, width(), width()},
                     .layout = layout(),
                     .keys = keys_.data() + cache,
                     .values = values_.data() + cache,
                     .key_scales = key_scales_.data() + scales,
                     .value_scales = value_scales_.data() + scales,
                     .num_blocks = cache_rows_ / layout().block_rows(),
                     .block_tables = tables_.data(),
                     .table_stride = blocks_,
                     .short_items = {short_items_.data(), counts, count(plan_.short_items)},
                     .long_items = {long_items_.data(), counts + 1, count(plan_.long_items)},
                     .partials = reinterpret_cast<float*>(partials_.data()),
                     .counters = counters_.data(),
                     .multiprocessors = device_.traits().multiprocessors,
                     .has_wgmma = device_.traits().has_wgmma},
                    device_.stream());
  }

 private:
  template <class T>
  static int32_t count(const std::vector<T>& items) {
    return static_cast<int32_t>(items.size());
  }
  int64_t width() const { return int64_t{shape_.num_heads} * shape_.head_dim; }
  cuda::KvLayout layout() const {
    return cuda::KvLayout::dense(shape_.num_kv_heads, kBlockSize, shape_.head_dim);
  }

  /// Of 16 bits, that a token's head has of a cache's numbers or of scales.
  int64_t row_words() const { return cuda::kv_row_bytes(cache_dtype_, shape_.head_dim) / 2; }
  int64_t scale_words() const {
    return cuda::kv_has_scales(cache_dtype_) ? cuda::kKvScaleBytes / 2 : 0;
  }

  cuda::AttentionPlan make_plan(int64_t sequences, int64_t context, int64_t rows) const {
    std::vector<SeqSlice> slices;
    for (int64_t i = 0; i < sequences; ++i) {
      slices.push_back({static_cast<int32_t>(i * rows),
                        static_cast<int32_t>(rows),
                        static_cast<int32_t>(context - rows),
                        {}});
    }
    cuda::AttentionPlan plan;
    cuda::plan_attention(slices, shape_, kMostPartials, &plan);
    return plan;
  }

  // Blocks lie where they happened to be free.
  std::vector<int32_t> make_tables(int64_t sequences) const {
    std::vector<int32_t> out(static_cast<size_t>(sequences * blocks_));
    std::iota(out.begin(), out.end(), 0);
    std::shuffle(out.begin(), out.end(), std::mt19937(7));
    return out;
  }

  BenchDevice& device_;
  DType cache_dtype_;
  cuda::AttentionShape shape_;
  int64_t rows_, blocks_, cache_rows_;
  cuda::AttentionPlan plan_;
  DeviceArray<int32_t> tables_, counts_;
  DeviceArray<cuda::AttentionItem> short_items_, long_items_;
  DeviceArray<char> partials_;
  DeviceArray<int32_t> counters_;
  DeviceArray<uint16_t> q_, out_, keys_, values_, key_scales_, value_scales_;
};

std::string heads(const ModelShape& shape) {
  return std::to_string(shape.heads) + " heads on " + std::to_string(shape.kv_heads) + " of " +
         std::to_string(shape.head_dim) + ", bf16";
}

void prefill(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
             const std::string& number, int64_t sequences, int64_t tokens, Report& report) {
  const ModelShape& shape = options.shape;
  const AttentionRun run(device, shape, sequences, tokens, tokens, 1);
  const double seconds = race(device, {{[&](int turn) { run.launch(turn); }}}, options.race(2))[0];
  const double rate =
      static_cast<double>(sequences) * prefill_flops(tokens, shape.heads, shape.head_dim) / seconds;
  report.add(rate_row(number,
                      "causal, " + std::to_string(sequences) + " x " + std::to_string(tokens) +
                          " tokens, " + heads(shape),
                      1e-12 * rate, "TFLOP/s", 1e-12 * held.matrix_rate, "matrix rate"));
}

void decode(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
            const std::string& number, int64_t sequences, int64_t context, Report& report) {
  const ModelShape& shape = options.shape;
  const double bytes = kv_bytes(sequences, context, shape.kv_heads, shape.head_dim);
  const int turns = cold_turns(device, options, static_cast<size_t>(bytes));
  const AttentionRun run(device, shape, sequences, context, 1, turns);
  const auto got = race_reads(device, {[&](int turn) { run.launch(turn); }}, held.read,
                              options.race(std::max(turns, options.least_turns / 4)));
  report.add(rate_row(number,
                      "batch " + std::to_string(sequences) + ", context " +
                          std::to_string(context) + ", " + heads(shape),
                      1e-9 * bytes / got.seconds, "GB/s", 1e-9 * got.read_rate, "read bandwidth"));
}

/// The same over a quantized cache, in turns with bf16: how many times as many tokens in that time.
void decode_codes(BenchDevice& device, const KernelBenchOptions& options, const std::string& number,
                  DType cache_dtype, Report& report) {
  const ModelShape& shape = options.shape;
  const int64_t sequences = options.decode_sequences, context = options.decode_context;
  const double bytes = kv_bytes(sequences, context, shape.kv_heads, shape.head_dim);
  const auto head_dim = static_cast<int32_t>(shape.head_dim);
  const double fewer =
      static_cast<double>(cuda::kv_row_bytes(DType::kBF16, head_dim)) /
      static_cast<double>(cuda::kv_row_bytes(cache_dtype, head_dim) + cuda::kKvScaleBytes);
  const int turns = cold_turns(device, options, static_cast<size_t>(bytes / fewer));
  const AttentionRun codes(device, shape, sequences, context, 1, turns, cache_dtype);
  const AttentionRun plain(device, shape, sequences, context, 1, turns);
  const auto seconds = race(
      device, {{[&](int turn) { codes.launch(turn); }}, {[&](int turn) { plain.launch(turn); }}},
      options.race(std::max(turns, options.least_turns / 4)));
  report.add(rate_row(number,
                      "batch " + std::to_string(sequences) + ", context " +
                          std::to_string(context) + ", " + heads(shape) + " queries",
                      seconds[1] / seconds[0], "x bf16", fewer, "x fewer bytes"));
}

}  // namespace

void bench_attention(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                     Report& report) {
  const int64_t sequences = options.decode_sequences, context = options.decode_context;
  const int64_t few = std::max<int64_t>(sequences / 8, 1), tokens = options.prefill_tokens;
  decode(device, options, held, "attention-decode", sequences, context, report);
  decode_codes(device, options, "attention-decode-fp8", DType::kF8E4M3, report);
  decode_codes(device, options, "attention-decode-int8", DType::kI8, report);
  decode_codes(device, options, "attention-decode-uint4", DType::kU4, report);
  decode(device, options, held, "attention-decode-many-1k", sequences, context / 8, report);
  decode(device, options, held, "attention-decode-few-1k", few, context / 8, report);
  decode(device, options, held, "attention-decode-one-8k", 1, context, report);
  decode(device, options, held, "attention-decode-one", 1, context / 8, report);
  prefill(device, options, held, "attention-prefill", 1, tokens, report);
  prefill(device, options, held, "attention-prefill-many", 8, tokens / 8, report);
}

}  // namespace headrace::bench
