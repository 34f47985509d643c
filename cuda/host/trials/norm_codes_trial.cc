#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

// Of the second unit of 128 a part, of which the rest is zeros.
constexpr int64_t kRows = 3, kCols = 200;
constexpr size_t kRowBytes = 2 * kRows * kCols;
constexpr size_t kInputBytes = 2 * kRowBytes + 2 * kCols;
constexpr size_t kCodeBytes = 2048;
constexpr Activations kKinds[] = {Activations::kInt8Rows, Activations::kFloat8Rows,
                                  Activations::kFloat8Groups};

constexpr QuantLayout layout_of(Activations kind) {
  return {{16, kCols, false}, {.bits = 8, .group_size = 128, .activations = kind}};
}

/// Rows with something added and codes by one kernel, then those of what that has left one by one.
class RoundingNormTrial {
 public:
  RoundingNormTrial(CudaContext& context, TrialOp<RmsNormArgs> op)
      : op_(op), trial_(context, kInputBytes, 2 * kHalf) {}

  std::string run() {
    std::mt19937 random(8);
    for (const Activations kind : kKinds) {
      const QuantLayout layout = layout_of(kind);
      HEADRACE_CHECK(RoundedRows(layout, kRows).bytes() <= int64_t{kCodeBytes});
      for (const char* how : kTrialRuns) {
        auto* const numbers = reinterpret_cast<uint16_t*>(trial_.staging());
        std::generate_n(numbers, kInputBytes / 2, [&] { return random_half(random); });
        trial_.upload();
        trial_.clear_outputs();
        trial_.run(static_cast<int64_t>(kind), [&] { launch(layout); });
        trial_.download();
        if (std::memcmp(trial_.staging(), trial_.staging() + kHalf, kHalf) != 0) {
          return str_cat("codes are wrong in ",
                         kind == Activations::kInt8Rows       ? "int8"
                         : kind == Activations::kFloat8Groups ? "fp8 by groups"
                                                              : "fp8",
                         how);
        }
      }
    }
    return "";
  }

 private:
  static constexpr size_t kCodesAt = 1280, kHalf = kCodesAt + kCodeBytes;  // of outputs
  static_assert(kCodesAt >= kRowBytes);

  void launch(const QuantLayout& layout) {
    std::byte* const in = trial_.inputs();
    std::byte* const out = trial_.outputs();
    const Stream stream = trial_.context().stream();
    RmsNormArgs args{.dtype = DType::kBF16,
                     .x = {in, kRows, kCols, kCols},
                     .delta = {in + kRowBytes, kRows, kCols, kCols},
                     .weight = in + 2 * kRowBytes,
                     .eps = 1e-5f,
                     .out = {out, kRows, kCols, kCols},
                     .rounded = {out + kCodesAt, layout}};
    op_(args, stream);
    args.delta = {};
    args.rounded = {};
    args.out.data = out + kHalf;
    op_(args, stream);
    round_rows(
        {.dtype = args.dtype, .x = args.out, .layout = layout, .out = out + kHalf + kCodesAt},
        stream);
  }

  TrialOp<RmsNormArgs> op_;
  Trial trial_;
};

}  // namespace

std::string try_rounding_norms(CudaContext& context, TrialOp<RmsNormArgs> op) {
  return guarded(context, [&] { return RoundingNormTrial(context, op).run(); });
}

}  // namespace headrace::cuda
