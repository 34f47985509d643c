#include <array>
#include <cstring>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace headrace::cuda {

namespace {

// Nine units of 128 inputs, more than there are stages; the last of them isn't whole.
constexpr int64_t kFeatures = 192, kInner = 1096;

/// A launch by wgmma. `multiprocessors` 0: the GPU's. One takes large tiles, several in turn.
struct Run {
  int64_t rows;
  int32_t multiprocessors;
};
// The first one's are the rows that all are held against.
constexpr std::array<Run, 7> kRuns = {
    {{136, 0}, {136, 1}, {1, 0}, {9, 0}, {20, 0}, {64, 0}, {100, 0}}};
constexpr int64_t kMostRows = kRuns.front().rows;

constexpr QuantLayout layout_of(Activations kind) {
  return {{kFeatures, kInner, false}, {.bits = 8, .group_size = 128, .activations = kind}};
}
constexpr Activations kKinds[] = {Activations::kFloat8Rows, Activations::kFloat8Groups};
constexpr auto kWeightBytes =
    static_cast<size_t>(layout_of(Activations::kFloat8Groups).bytes());  // the most
constexpr size_t kInputBytes = kWeightBytes + 2 * kMostRows * kInner;
constexpr size_t kRowBytes = sizeof(float) * kFeatures;
constexpr size_t kSlotBytes = kRowBytes * kMostRows;
constexpr size_t kResultBytes = (kRuns.size() + 1) * kSlotBytes;  // slot 0: by mma.sync
static_assert(kWeightBytes % 256 == 0 && kResultBytes % 256 == 0);

class CodeTrial {
 public:
  CodeTrial(CudaContext& context, TrialOp<QuantLinearArgs> op, Activations kind)
      : op_(op), layout_(layout_of(kind)), trial_(context, kInputBytes, output_bytes()) {}

  std::string run() {
    make_inputs();
    for (const char* how : kTrialRuns) {
      trial_.clear_outputs();
      launch({kMostRows, 0}, false, 0);
      trial_.run(static_cast<int64_t>(layout_.format.activations), [&] {
        for (size_t i = 0; i < kRuns.size(); ++i) launch(kRuns[i], true, i + 1);
      });
      const std::string why = compare();
      if (!why.empty()) return str_cat(why, layout_.groups() == 1 ? "" : " in groups", how);
    }
    return "";
  }

 private:
  size_t output_bytes() const {
    return kResultBytes + static_cast<size_t>(RoundedRows(layout_, kMostRows).bytes());
  }

  void make_inputs() {
    std::mt19937 random(1);
    std::byte* const weight = trial_.staging();
    for (int64_t tile = 0; tile < layout_.tiles(); ++tile) {
      std::byte* const at = weight + tile * layout_.tile_bytes();
      for (int64_t i = 0; i < layout_.scales_at(); ++i) {
        const int64_t feature = tile * kQuantTile + i / kQuantUnit % kQuantTile;
        at[i] = static_cast<std::byte>(f32_to_e4m3(trial_weight(random, feature)));
      }
      for (int64_t i = 0; i < layout_.groups() * kQuantTile; ++i) {
        const float scale = trial_scale(random);
        std::memcpy(at + layout_.scales_at() + i * 4, &scale, sizeof scale);
      }
    }
    for (int64_t i = 0; i < kMostRows * kInner; ++i) {
      const bool first = i % kInner % kQuantUnit == 0;
      const uint16_t number = f32_to_bf16(trial_number(random, i / kInner, first));
      std::memcpy(weight + kWeightBytes + 2 * i, &number, sizeof number);
    }
    trial_.upload();
  }

  void launch(const Run& run, bool has_wgmma, size_t slot) {
    const CudaContext& context = trial_.context();
    const int32_t all = context.properties().multiprocessors;
    QuantLinearArgs args{
        .linear = {.dtype = DType::kBF16,
                   .x = {trial_.inputs() + kWeightBytes, run.rows, kInner, kInner},
                   .weight = trial_.inputs(),
                   .layout = layout_.matrix,
                   .out_dtype = DType::kF32,
                   .multiprocessors = run.multiprocessors == 0 ? all : run.multiprocessors,
                   .has_wgmma = has_wgmma},
        .format = layout_.format,
        .rounded = trial_.outputs() + kResultBytes};
    args.linear.out = {trial_.outputs() + slot * kSlotBytes, run.rows, kFeatures, kFeatures};
    op_(args, context.stream());
  }

  std::string compare() {
    trial_.download();
    const std::byte* const wanted = trial_.staging();
    const std::byte* const first = wanted + kSlotBytes;
    for (size_t i = 0; i < kRuns.size(); ++i) {
      const std::byte* const found = first + i * kSlotBytes;
      if (std::memcmp(found, first, static_cast<size_t>(kRuns[i].rows) * kRowBytes) != 0) {
        return str_cat("of ", kRuns[i].rows, " rows they differ");
      }
    }
    if (std::memcmp(first, wanted, kSlotBytes) != 0) return "values are wrong";
    return "";
  }

  TrialOp<QuantLinearArgs> op_;
  const QuantLayout layout_;
  Trial trial_;
};

}  // namespace

std::string try_wgmma_codes(CudaContext& context, TrialOp<QuantLinearArgs> op) {
  return guarded(context, [&]() -> std::string {
    for (const Activations kind : kKinds) {
      const std::string why = CodeTrial(context, op, kind).run();
      if (!why.empty()) return why;
    }
    return "";
  });
}

}  // namespace headrace::cuda
