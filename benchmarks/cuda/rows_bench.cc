#include <algorithm>

#include "bench_kernels.h"
#include "cuda/kernels/rms_norm.h"
#include "cuda/kernels/rope_kv_write.h"
#include "cuda/kernels/sample.h"
#include "kernel_bench.h"

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
  const auto got =
      race_reads(device, contestant, held.read,
                 {.turns = std::max(turns, options.least_turns / 2), .rounds = options.rounds});
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
  const cuda::KvLayout layout{static_cast<int32_t>(shape.kv_heads), kBlockSize,
                              static_cast<int32_t>(d)};
  const int64_t blocks = (rows + kBlockSize - 1) / kBlockSize;
  const double bytes = 2.0 * static_cast<double>(rows * (2 * shape.heads + 4 * shape.kv_heads) * d);
  const int turns = cold_turns(device, options, static_cast<size_t>(bytes));
  const Numbers qkv = random_numbers(device, turns * rows * cols, 41);
  const Numbers keys(device, static_cast<size_t>(blocks * layout.block_elements()));
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

void bench_sampling(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                    Report& report) {
  constexpr int kTurns = 4;
  // As a model that is fairly sure, and one that hardly is.
  struct Kind {
    const char* number;
    const char* what;
    float deviation;
  };
  const int32_t rows = options.sample_rows, vocab = options.sample_vocab;
  const int64_t size = int64_t{rows} * vocab;
  const DeviceArray<float> logits(device, static_cast<size_t>(kTurns * size));
  const DeviceArray<cuda::SampleRowResult> results(device, static_cast<size_t>(rows));
  std::vector<cuda::SampleRowArgs> wanted(static_cast<size_t>(rows));
  for (int32_t i = 0; i < rows; ++i) {
    wanted[static_cast<size_t>(i)] = {.seed = 7,
                                      .position = static_cast<uint64_t>(i),
                                      .logits_row = i,
                                      .top_k = 50,
                                      .temperature = 0.8f,
                                      .top_p = 0.9f};
  }
  const DeviceArray<cuda::SampleRowArgs> device_rows(device, wanted);
  for (const Kind& kind : {Kind{"sampling", "", 3.0f}, Kind{"sampling-flat", ", flat", 0.5f}}) {
    const auto prepare = [&] {
      fill_bell(logits.data(), kTurns * size, 51, kind.deviation, device.stream());
    };
    const auto launch = [&](int turn) {
      cuda::sample({.logits = logits.data() + turn % kTurns * size,
                    .stride = vocab,
                    .vocab_size = vocab,
                    .rows = device_rows.data(),
                    .num_rows = rows,
                    .results = results.data()},
                   device.stream());
    };
    const auto got = race_reads(device, {launch, prepare}, held.read,
                                {.turns = kTurns, .rounds = options.rounds});
    const double floor = 4.0 * static_cast<double>(size) / got.read_rate;
    report.add(time_row(kind.number,
                        std::to_string(rows) + " rows x " + std::to_string(vocab) +
                            ", top-k 50, top-p 0.9" + kind.what,
                        1e6 * got.seconds, "us", 1e6 * floor, "one read of the logits"));
  }
}

}  // namespace headrace::bench
