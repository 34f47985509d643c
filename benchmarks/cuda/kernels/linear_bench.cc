#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "benchmarks/cuda/kernels/bench_kernels.h"
#include "benchmarks/cuda/kernels/cublaslt.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/linear/linear_plan.h"
#include "tensor/dtype.h"

namespace headrace::bench {

namespace {

constexpr size_t kPeerWorkspace = size_t{32} << 20;
/// Plans whose predicted times are longer than the chosen one's by more aren't timed.
constexpr double kPlanMargin = 1.35;
constexpr RaceOptions kChoosing = {.turns = 4, .rounds = 3};

/// `launch(algorithm)` is the contestant that runs it. Throws std::runtime_error if there is none.
template <class Launch>
size_t fastest_algorithm(BenchDevice& device, const CublasLt::Product& product,
                         const Launch& launch) {
  std::vector<Contestant> offered;
  for (size_t i = 0; i < product.num_algorithms(); ++i) offered.push_back(launch(i));
  if (offered.empty()) throw std::runtime_error("cuBLASLt offers no algorithm");
  const auto seconds = race(device, offered, kChoosing);
  return static_cast<size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

/// Room for the largest product, and what the products of all shapes take their weights from.
struct LinearMemory {
  int64_t weight_elements;
  DeviceArray<uint16_t> weights, x, out, peer_out;
  DeviceArray<char> peer_workspace;

  LinearMemory(BenchDevice& device, int64_t weight, int64_t in, int64_t result)
      : weight_elements(weight),
        weights(device, static_cast<size_t>(weight)),
        x(device, static_cast<size_t>(in)),
        out(device, static_cast<size_t>(result)),
        peer_out(device, static_cast<size_t>(result)),
        peer_workspace(device, kPeerWorkspace) {
    fill_uniform(weights.data(), weight, 11, device.stream());
    fill_uniform(x.data(), in, 12, device.stream());
  }
};

class LinearBench {
 public:
  LinearBench(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
              Report& report)
      : device_(device),
        options_(options),
        peer_(held.peer),
        peer_missing_(held.peer_missing),
        report_(report),
        memory_(make_memory()) {}

  void run() {
    const auto shapes = linear_shapes(options_.shape);
    const std::string all = "8B shapes, bf16: geometric mean over ";
    Speeds few, some, many;
    for (const LinearShape& shape : shapes) {
      for (const int64_t rows : options_.few_rows) measure(shape, rows, few);
    }
    sum_up("linear-few", all + "layers, head and rows", few);
    for (const LinearShape& shape : shapes) {
      if (shape.name == "head") continue;  // no step multiplies it with so many rows
      for (const int64_t rows : options_.some_rows) measure(shape, rows, some);
      measure(shape, options_.many_rows, many);
    }
    sum_up("linear-some", all + "layers and rows", some);
    sum_up("linear-many", all + "layers", many);
    if (failed_ > 0) throw std::runtime_error(std::to_string(failed_) + " products failed");
  }

  void run_plans() {
    if (!device_.traits().has_wgmma) return;
    for (const LinearShape& shape : linear_shapes(options_.shape)) {
      if (shape.name == "head") continue;
      for (const int64_t rows : options_.plan_rows) measure_plans(shape, rows);
    }
    if (failed_ > 0) throw std::runtime_error(std::to_string(failed_) + " products failed");
  }

 private:
  /// Of several products: how many times as fast as the peer ours are.
  struct Speeds {
    std::vector<double> each;
    int failed = 0;
  };

  LinearMemory make_memory() {
    const int64_t few = *std::max_element(options_.few_rows.begin(), options_.few_rows.end());
    const int64_t most = std::max(options_.many_rows, *std::max_element(options_.plan_rows.begin(),
                                                                        options_.plan_rows.end()));
    int64_t weight = 0, in = 0, out = 0;
    for (const LinearShape& shape : linear_shapes(options_.shape)) {
      const int64_t rows = shape.name == "head" ? few : std::max(few, most);
      const int turns = cold_turns(device_, options_, size_t(2 * shape.n * shape.k));
      weight = std::max(weight, turns * shape.n * shape.k);
      in = std::max(in, rows * shape.k);
      out = std::max(out, rows * shape.n);
    }
    return {device_, weight, in, out};
  }

  static cuda::WeightLayout layout(const LinearShape& shape) {
    const cuda::WeightLayout out{.n = shape.n, .k = shape.k};
    if (out.elements() != shape.n * shape.k) throw std::logic_error("a shape with padding");
    return out;
  }

  const uint16_t* weight(const LinearShape& shape, int turn) const {
    const int64_t copies = memory_.weight_elements / (shape.n * shape.k);
    return memory_.weights.data() + turn % copies * shape.n * shape.k;
  }

  Contestant own(const LinearShape& shape, int64_t rows, const cuda::LinearPlan* plan = nullptr) {
    return {[=, this](int turn) {
      cuda::linear({.dtype = DType::kBF16,
                    .x = {memory_.x.data(), rows, shape.k, shape.k},
                    .weight = weight(shape, turn),
                    .layout = layout(shape),
                    .out_dtype = DType::kBF16,
                    .out = {memory_.out.data(), rows, shape.n, shape.n},
                    .multiprocessors = device_.traits().multiprocessors,
                    .has_wgmma = device_.traits().has_wgmma,
                    .plan = plan},
                   device_.stream());
    }};
  }

  Contestant peer(const LinearShape& shape, const CublasLt::Product& product, size_t algorithm) {
    return {[=, this, &product](int turn) {
      product.run(algorithm, memory_.x.data(), weight(shape, turn), memory_.peer_out.data(),
                  device_.stream());
    }};
  }

  /// The fastest of what the heuristic offers.
  size_t choose(const LinearShape& shape, const CublasLt::Product& product) {
    const auto launch = [&](size_t algorithm) { return peer(shape, product, algorithm); };
    return fastest_algorithm(device_, product, launch);
  }

  /// As a row's number ends.
  static std::string name_of(const cuda::LinearPlan& plan) {
    return std::to_string(plan.tokens) + "x" + std::to_string(plan.features) +
           (plan.streams ? "-stream-" : "-wgmma-") + std::to_string(plan.cluster.tokens) + "x" +
           std::to_string(plan.cluster.features);
  }

  /// Adds a row for what linear() does, and one for each plan that may be faster.
  void measure_plans(const LinearShape& shape, int64_t rows) {
    const cuda::ClusterRoom room{device_.traits().multiprocessors,
                                 device_.traits().multiprocessors / 4};
    const cuda::LinearSize size{rows, shape.n, shape.k};
    const double least = linear_cycles(plan_linear(size, room), size, room);
    std::vector<std::string> names = {"chosen"};
    std::vector<Contestant> contestants = {own(shape, rows)};
    for (const cuda::LinearPlan& plan : cuda::linear_plans()) {
      if (linear_cycles(plan, size, room) > kPlanMargin * least) continue;
      names.push_back(name_of(plan));
      contestants.push_back(own(shape, rows, &plan));
    }
    const std::string number = "linear-plan-" + shape.name + "-" + std::to_string(rows);
    try {
      const std::vector<double> seconds = race_plans(shape, rows, std::move(contestants));
      for (size_t i = 0; i < names.size(); ++i) {
        report_time(number + "-" + names[i], shape, rows, {seconds[i], seconds.back()});
      }
    } catch (const std::exception& e) {
      ++failed_;
      report_.missing(number, e.what());
    }
  }

  /// The contestants' seconds and, if there is one, the peer's behind them.
  std::vector<double> race_plans(const LinearShape& shape, int64_t rows,
                                 std::vector<Contestant> contestants) {
    const auto bytes = static_cast<size_t>(2 * shape.n * shape.k);
    const int turns = std::max(options_.least_turns / 2, cold_turns(device_, options_, bytes));
    std::optional<CublasLt::Product> product;
    if (peer_) {
      product.emplace(*peer_, CublasLt::Problem{rows, shape.n, shape.k,
                                                memory_.peer_workspace.data(), kPeerWorkspace});
      contestants.push_back(peer(shape, *product, choose(shape, *product)));
    }
    return race(device_, contestants, options_.race(turns));
  }

  /// Adds a row, and its speed to `speeds`.
  void measure(const LinearShape& shape, int64_t rows, Speeds& speeds) {
    const std::string number = "linear-" + shape.name + "-" + std::to_string(rows);
    try {
      const std::vector<double> seconds = race_peer(shape, rows);
      report_time(number, shape, rows, seconds);
      if (peer_) speeds.each.push_back(seconds[1] / seconds[0]);
    } catch (const std::exception& e) {
      ++failed_;
      ++speeds.failed;
      report_.missing(number, e.what());
    }
  }

  /// Seconds of ours and, if there is one, of the peer's.
  std::vector<double> race_peer(const LinearShape& shape, int64_t rows) {
    const bool few = rows < options_.many_rows;
    const auto bytes = static_cast<size_t>(2 * shape.n * shape.k);
    const int turns = std::max(few ? options_.least_turns : options_.least_turns / 4,
                               cold_turns(device_, options_, bytes));
    std::vector<Contestant> contestants = {own(shape, rows)};
    std::optional<CublasLt::Product> product;
    if (peer_) {
      product.emplace(*peer_, CublasLt::Problem{rows, shape.n, shape.k,
                                                memory_.peer_workspace.data(), kPeerWorkspace});
      contestants.push_back(peer(shape, *product, choose(shape, *product)));
      expect_agreement(shape, rows, contestants);
    }
    return race(device_, contestants, options_.race(turns));
  }

  void report_time(const std::string& number, const LinearShape& shape, int64_t rows,
                   const std::vector<double>& seconds) {
    char work[120];
    std::snprintf(work, sizeof work, "%lld x %lld x %lld: %.0f TFLOP/s, %.0f GB/s of weights",
                  static_cast<long long>(rows), static_cast<long long>(shape.n),
                  static_cast<long long>(shape.k),
                  1e-12 * linear_flops(rows, shape.n, shape.k) / seconds[0],
                  2e-9 * static_cast<double>(shape.n * shape.k) / seconds[0]);
    const double other = peer_ ? 1e6 * seconds[1] : 0;
    report_.add(time_row(number, work, 1e6 * seconds[0], "us", other, peer_ ? peer_->name() : ""));
  }

  // Both round to bfloat16 (an ulp is 2^-7 of a number at most); the sums differ by far less than a
  // wrong one does.
  void expect_agreement(const LinearShape& shape, int64_t rows,
                        const std::vector<Contestant>& contestants) {
    for (const Contestant& one : contestants) one.launch(0);
    std::vector<uint16_t> ours(static_cast<size_t>(shape.n)), theirs(ours.size());
    for (const int64_t row : {int64_t{0}, rows - 1}) {
      const int64_t at = row * shape.n;
      device_.download(ours.data(), memory_.out.data() + at, 2 * ours.size());
      device_.download(theirs.data(), memory_.peer_out.data() + at, 2 * ours.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        const float a = bf16_to_f32(ours[i]), b = bf16_to_f32(theirs[i]);
        const float bound =
            0x1p-7f * std::max(std::abs(a), std::abs(b)) + 0x1p-16f * static_cast<float>(shape.k);
        if (std::abs(a - b) <= bound) continue;
        throw std::runtime_error(shape.name + ", " + std::to_string(rows) + " rows: " +
                                 std::to_string(a) + " and cuBLASLt's " + std::to_string(b));
      }
    }
  }

  void sum_up(const std::string& number, const std::string& work, const Speeds& speeds) {
    if (!peer_) return report_.missing(number, "no cuBLASLt: " + peer_missing_);
    if (speeds.failed > 0) return report_.missing(number, "some of its products failed");
    report_.add(rate_row(number, work, geometric_mean(speeds.each), "x", 1, peer_->name()));
  }

  BenchDevice& device_;
  const KernelBenchOptions& options_;
  const std::optional<CublasLt>& peer_;
  const std::string& peer_missing_;
  Report& report_;
  int failed_ = 0;
  LinearMemory memory_;
};

}  // namespace

double measure_matrix_rate(BenchDevice& device, const CublasLt& library, int64_t size) {
  const auto elements = static_cast<size_t>(size * size);
  const DeviceArray<uint16_t> x(device, elements), weight(device, elements), out(device, elements);
  const DeviceArray<char> workspace(device, kPeerWorkspace);
  fill_uniform(x.data(), size * size, 13, device.stream());
  fill_uniform(weight.data(), size * size, 14, device.stream());
  const CublasLt::Product product(library, {size, size, size, workspace.data(), kPeerWorkspace});
  const auto contestant = [&](size_t algorithm) -> Contestant {
    return {[&, algorithm](int) {
      product.run(algorithm, x.data(), weight.data(), out.data(), device.stream());
    }};
  };
  const size_t best = fastest_algorithm(device, product, contestant);
  const double seconds = race(device, {contestant(best)}, {.turns = 4, .rounds = 7})[0];
  return linear_flops(size, size, size) / seconds;
}

void bench_linears(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                   Report& report) {
  LinearBench(device, options, held, report).run();
}

void bench_linear_plans(BenchDevice& device, const KernelBenchOptions& options,
                        const Yardsticks& held, Report& report) {
  LinearBench(device, options, held, report).run_plans();
}

}  // namespace headrace::bench
