#include <algorithm>
#include <cmath>

#include "benchmarks/cuda/kernels/bench_kernels.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"
#include "cuda/kernels/vision/segment_attention.h"

namespace headrace::bench {

namespace {

/// All rows of an image through one layer's attention, keys and values side by side as a tower has
/// them; segments of `segment` rows.
class SegmentRun {
 public:
  SegmentRun(BenchDevice& device, const TowerShape& tower, int64_t rows, int64_t segment)
      : device_(device),
        tower_(tower),
        rows_(rows),
        items_(device, cuda::segment_items(ends(rows, segment))),
        q_(device, static_cast<size_t>(rows * tower.width)),
        kv_(device, static_cast<size_t>(2 * rows * tower.width)),
        out_(device, q_.size()) {
    uint32_t seed = 61;
    for (const DeviceArray<uint16_t>* numbers : {&q_, &kv_}) {
      fill_uniform(numbers->data(), static_cast<int64_t>(numbers->size()), seed++, device.stream());
    }
  }

  void launch() const {
    const int64_t width = tower_.width, d = width / tower_.heads;
    cuda::segment_attention({.dtype = DType::kBF16,
                             .q = {q_.data(), rows_, width, width},
                             .k = {kv_.data(), rows_, width, 2 * width},
                             .v = {kv_.data() + width, rows_, width, 2 * width},
                             .heads = static_cast<int32_t>(tower_.heads),
                             .head_dim = static_cast<int32_t>(d),
                             .scale = 1.0f / std::sqrt(static_cast<float>(d)),
                             .items = items_.data(),
                             .num_items = static_cast<int32_t>(items_.size()),
                             .out = {out_.data(), rows_, width, width}},
                            device_.stream());
  }

 private:
  static std::vector<int32_t> ends(int64_t rows, int64_t segment) {
    std::vector<int32_t> out;
    for (int64_t end = 0; end < rows;) {
      end = std::min(end + segment, rows);
      out.push_back(static_cast<int32_t>(end));
    }
    return out;
  }

  BenchDevice& device_;
  const TowerShape& tower_;
  int64_t rows_;
  DeviceArray<cuda::SegmentItem> items_;
  DeviceArray<uint16_t> q_, kv_, out_;
};

void measure(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
             const std::string& number, int64_t segment, Report& report) {
  const TowerShape& tower = options.tower;
  const int64_t rows = options.tower_rows;
  const SegmentRun run(device, tower, rows, segment);
  const double seconds =
      race(device, {{[&](int) { run.launch(); }}}, options.race(options.least_turns))[0];
  const double rate = segment_flops(rows, segment, tower.width) / seconds;
  report.add(rate_row(number,
                      std::to_string(rows) + " rows in segments of " + std::to_string(segment) +
                          ", " + std::to_string(tower.heads) + " heads of " +
                          std::to_string(tower.width / tower.heads) + ", bf16",
                      1e-12 * rate, "TFLOP/s", 1e-12 * held.matrix_rate, "matrix rate"));
}

}  // namespace

void bench_segments(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                    Report& report) {
  measure(device, options, held, "segments-whole", options.tower_rows, report);
  measure(device, options, held, "segments-windows", options.tower.window_rows, report);
}

}  // namespace headrace::bench
