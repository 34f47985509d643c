#include <array>
#include <cstring>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr int64_t kFeatures = 192, kInner = 96;
// The last one's are the rows that all are held against.
constexpr std::array<int64_t, 4> kRows = {1, 9, 64, 257};
constexpr int64_t kMostRows = kRows.back(), kPlannedRows = 130;
constexpr size_t kPlans = 2;  // of a case
constexpr size_t kLaunches = kRows.size() + kPlans;

constexpr WeightLayout layout(bool gate_up) { return {kFeatures, kInner, gate_up}; }
constexpr size_t kWeightBytes = 2 * static_cast<size_t>(layout(false).elements());
constexpr size_t kBiasBytes = 2 * kFeatures;
constexpr size_t kInputBytes = kWeightBytes + kBiasBytes + 2 * kMostRows * kInner;
constexpr size_t kSlotBytes = sizeof(float) * kFeatures * kMostRows;
constexpr size_t kOutputBytes = (kLaunches + 1) * kSlotBytes;
static_assert(layout(true).elements() == layout(false).elements() && kBiasBytes % 128 == 0);

struct LinearCase {
  const char* name;
  DType dtype;
  bool gate_mul;  ///< else with a bias, to float32
  LinearPlan plans[kPlans];
};

// Each tile that there is, and each way to share what is copied.
constexpr LinearCase kCases[] = {
    {"bfloat16", DType::kBF16, false, {{true, 64, 64, {2, 2}}, {false, 128, 128, {1, 2}}}},
    {"bfloat16 with SiLU",
     DType::kBF16,
     true,
     {{true, 128, 64, {1, 4}}, {false, 128, 192, {2, 1}}}},
    {"float16", DType::kF16, false, {{true, 128, 64, {1, 2}}, {false, 128, 128, {2, 2}}}},
    {"float16 with SiLU",
     DType::kF16,
     true,
     {{false, 128, 224, {2, 1}}, {false, 128, 256, {1, 1}}}}};

int64_t rows_of(size_t launch) { return launch < kRows.size() ? kRows[launch] : kPlannedRows; }

class LinearTrial {
 public:
  LinearTrial(CudaContext& context, TrialOp<LinearArgs> op)
      : op_(op), trial_(context, kInputBytes, kOutputBytes) {}

  std::string run() {
    make_inputs();
    for (const LinearCase& one : kCases) {
      for (const char* how : kTrialRuns) {
        trial_.clear_outputs();
        launch(one, kMostRows, 0);
        trial_.run(&one - kCases, [&] {
          for (size_t i = 0; i < kLaunches; ++i) launch(one, rows_of(i), i + 1);
        });
        const int64_t rows = first_difference(one);
        if (rows > 0) return str_cat("of ", rows, " rows in ", one.name, how, " they differ");
      }
    }
    return "";
  }

 private:
  void make_inputs() {
    std::mt19937 random(1);
    auto* const numbers = reinterpret_cast<uint16_t*>(trial_.staging());
    for (size_t i = 0; i < kInputBytes / 2; ++i) numbers[i] = random_half(random);
    constexpr auto kStride = static_cast<size_t>(layout(false).stride());
    for (size_t i = 0; i < kWeightBytes / 2; ++i) {
      if (i % kStride >= kInner) numbers[i] = 0;
    }
    trial_.upload();
  }

  static int64_t columns(const LinearCase& one) { return one.gate_mul ? kFeatures / 2 : kFeatures; }

  /// Slot 0: without wgmma.
  void launch(const LinearCase& one, int64_t rows, size_t slot) {
    const CudaContext& context = trial_.context();
    const std::byte* const bias = trial_.inputs() + kWeightBytes;
    LinearArgs args{.dtype = one.dtype,
                    .x = {bias + kBiasBytes, rows, kInner, kInner},
                    .weight = trial_.inputs(),
                    .layout = layout(one.gate_mul),
                    .bias = one.gate_mul ? nullptr : bias,
                    .gate_mul = one.gate_mul,
                    .out_dtype = one.gate_mul ? one.dtype : DType::kF32,
                    .multiprocessors = context.properties().multiprocessors,
                    .has_wgmma = slot > 0};
    if (slot > kRows.size()) args.plan = &one.plans[slot - 1 - kRows.size()];
    args.out = {trial_.outputs() + slot * kSlotBytes, rows, columns(one), columns(one)};
    op_(args, context.stream());
  }

  /// Rows of the first launch that has other bits than slot 0; 0 = none.
  int64_t first_difference(const LinearCase& one) {
    trial_.download();
    const std::byte* const found = trial_.staging();
    const size_t row_bytes =
        static_cast<size_t>(columns(one)) * dtype_size(one.gate_mul ? one.dtype : DType::kF32);
    for (size_t i = 0; i < kLaunches; ++i) {
      const size_t bytes = static_cast<size_t>(rows_of(i)) * row_bytes;
      if (std::memcmp(found + (i + 1) * kSlotBytes, found, bytes) != 0) return rows_of(i);
    }
    return 0;
  }

  TrialOp<LinearArgs> op_;
  Trial trial_;
};

}  // namespace

std::string try_wgmma_linears(CudaContext& context, TrialOp<LinearArgs> op) {
  return guarded(context, [&] { return LinearTrial(context, op).run(); });
}

}  // namespace headrace::cuda
