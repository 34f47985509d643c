#include <algorithm>

#include "benchmarks/cuda/kernels/bench_kernels.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "cuda/kernels/rows/rope_kv_write.h"
#include "cuda/kernels/sample/sample.h"

namespace headrace::bench {

namespace {

using Numbers = DeviceArray<uint16_t>;

Numbers random_numbers(BenchDevice& device, int64_t count, uint32_t seed) {
  Numbers out(device, static_cast<size_t>(count));
  fill_uniform(out.data(), count, seed, device.stream());
  return out;
}

void report_bytes(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                  const std::string& number, const std::string& work, double bytes, int turns,
                  const Contestant& contestant, Report& report) {
  const auto got = race_reads(device, contestant, held.read,
                              options.race(std::max(turns, options.least_turns / 2)));
  report.add(rate_row(number, work, 1e-9 * bytes / got.seconds, "GB/s", 1e-9 * got.read_rate,
                      "read bandwidth"));
}

void norm(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
          Report& report) {
  const int64_t rows = options.many_rows, cols = options.shape.hidden, size = rows * cols;
  const double bytes = 2.0 * 4 * static_cast<double>(size);
  const int turns = cold_turns(device, options, static_cast<size_t>(bytes));
  const Numbers x = random_numbers(device, turns * size, 31);
  const Numbers delta = random_numbers(device, turns * size, 32);
  const Numbers weight = random_numbers(device, cols, 33);
  const auto launch = [&](int turn) {
    const int64_t at = turn % turns * size;
    const cuda::Matrix sums = {x.data() + at, rows, cols, cols};
    const cuda::Matrix out = {delta.data() + at, rows, cols, cols};
    cuda::rms_norm(
        {.dtype = DType::kBF16, .x = sums, .delta = out, .weight = weight.data(), .out = out},
        device.stream());
  };
  report_bytes(device, options, held, "add-rms-norm",
               std::to_string(rows) + " x " + std::to_string(cols) + ", bf16", bytes, turns,
               {launch}, report);
}

void rope(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
          Report& report) {
  constexpr int32_t kBlockSize = 64;
  const ModelShape& shape = options.shape;
  const int64_t rows = options.many_rows, cols = shape.qkv(), d = shape.head_dim;
  const auto heads = static_cast<int32_t>(shape.heads);
  const auto layout = cuda::KvLayout::dense(static_cast<int32_t>(shape.kv_heads), kBlockSize,
                                            static_cast<int32_t>(d));
  const int64_t blocks = (rows + kBlockSize - 1) / kBlockSize;
  const double bytes = 2.0 * static_cast<double>(rows * (2 * shape.heads + 4 * shape.kv_heads) * d);
  const int turns = cold_turns(device, options, static_cast<size_t>(bytes));
  const Numbers qkv = random_numbers(device, turns * rows * cols, 41);
  const Numbers keys(device, static_cast<size_t>(blocks * layout.block_rows() * d));
  const Numbers values(device, keys.size());
  const DeviceArray<float> table(device, static_cast<size_t>(rows * d));
  fill_bell(table.data(), rows * d, 42, 0.5f, device.stream());
  std::vector<int64_t> places(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) places[static_cast<size_t>(i)] = i;
  const DeviceArray<int64_t> slots(device, places);
  const auto launch = [&](int turn) {
    cuda::rope_kv_write({.dtype = DType::kBF16,
                         .qkv = {qkv.data() + turn % turns * rows * cols, rows, cols, cols},
                         .num_heads = heads,
                         .rope_table = table.data(),
                         .rope_stride = d,
                         .rotary_dim = static_cast<int32_t>(d),
                         .cache_dtype = DType::kBF16,
                         .layout = layout,
                         .keys = keys.data(),
                         .values = values.data(),
                         .slots = slots.data()},
                        device.stream());
  };
  report_bytes(device, options, held, "rope-kv-write",
               std::to_string(rows) + " rows of " + std::to_string(cols) + ", bf16", bytes, turns,
               {launch}, report);
}

}  // namespace

void bench_rows(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                Report& report) {
  norm(device, options, held, report);
  rope(device, options, held, report);
}

namespace {

/// Rows to sample, and how.
struct SamplingWork {
  const char* number;
  const char* what;
  int32_t rows;
  float deviation;  ///< of the logits: 3 as a model that is fairly sure, 0.5 as one that hardly is
  cuda::SampleRowArgs row;
};

/// Every launch finds its logits outside of the cache.
void sampling(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
              const SamplingWork& work, const DeviceArray<float>& logits, Report& report) {
  const int32_t vocab = options.sample_vocab;
  const int64_t size = int64_t{work.rows} * vocab;
  constexpr int64_t kMostTurns = 32;
  const int64_t turns = std::min(kMostTurns, static_cast<int64_t>(logits.size()) / size);
  std::vector<cuda::SampleRowArgs> wanted(static_cast<size_t>(work.rows), work.row);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].seed = 7;
    wanted[i].position = i;
    wanted[i].logits_row = static_cast<int64_t>(i);
  }
  const DeviceArray<cuda::SampleRowArgs> rows(device, wanted);
  const DeviceArray<cuda::SampleRowResult> results(device, wanted.size());
  constexpr int32_t kMaxLogprobs = 5;
  const DeviceArray<TokenLogprob> top(device, wanted.size() * kMaxLogprobs);
  const DeviceArray<std::byte> workspace(device, cuda::sample_workspace_bytes(work.rows, vocab));
  fill_bell(logits.data(), turns * size, 51, work.deviation, device.stream());
  const auto launch = [&](int turn) {
    cuda::sample({.logits = logits.data() + turn % turns * size,
                  .stride = vocab,
                  .vocab_size = vocab,
                  .rows = rows.data(),
                  .num_rows = work.rows,
                  .spreads = cuda::needs_total(work.row),
                  .workspace = workspace.data(),
                  .results = results.data(),
                  .top = top.data(),
                  .max_logprobs = kMaxLogprobs},
                 device.stream());
  };
  const auto got = race_reads(device, {launch}, held.read, options.race(static_cast<int>(turns)));
  const double floor = 4.0 * static_cast<double>(size) / got.read_rate;
  report.add(
      time_row(work.number,
               std::to_string(work.rows) + " rows x " + std::to_string(vocab) + ", " + work.what,
               1e6 * got.seconds, "us", 1e6 * floor, "one read of the logits"));
}

}  // namespace

void bench_sampling(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                    Report& report) {
  const cuda::SampleRowArgs greedy{.greedy = true}, warm{.temperature = 0.8f};
  cuda::SampleRowArgs top_p = warm, top_k = warm, logprobs = greedy;
  top_p.top_p = top_k.top_p = 0.9f;
  top_k.top_k = 50;
  logprobs.num_logprobs = 5;
  const int32_t rows = options.sample_rows;
  const SamplingWork works[] = {
      {"sampling", "top-k 50, top-p 0.9", rows, 3.0f, top_k},
      {"sampling-flat", "top-k 50, top-p 0.9, flat", rows, 0.5f, top_k},
      {"sampling-1", "top-k 50, top-p 0.9", 1, 3.0f, top_k},
      {"sampling-twice", "top-k 50, top-p 0.9", 2 * rows, 3.0f, top_k},
      {"sampling-top-p", "top-p 0.9", rows, 3.0f, top_p},
      {"sampling-top-p-flat", "top-p 0.9, flat", rows, 0.5f, top_p},
      {"sampling-temperature", "temperature 0.8", rows, 3.0f, warm},
      {"sampling-temperature-flat", "temperature 0.8, flat", rows, 0.5f, warm},
      {"sampling-temperature-1", "temperature 0.8", 1, 3.0f, warm},
      {"sampling-temperature-flat-1", "temperature 0.8, flat", 1, 0.5f, warm},
      {"sampling-greedy", "greedy", rows, 3.0f, greedy},
      {"sampling-greedy-1", "greedy", 1, 3.0f, greedy},
      {"sampling-logprobs", "greedy, 5 log-probabilities", rows, 3.0f, logprobs},
  };
  constexpr size_t kTurns = 4;
  const DeviceArray<float> logits(
      device, kTurns * static_cast<size_t>(2 * rows) * static_cast<size_t>(options.sample_vocab));
  for (const SamplingWork& work : works) sampling(device, options, held, work, logits, report);
}

}  // namespace headrace::bench
