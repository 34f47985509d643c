#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr int64_t kFeatures = 128, kInner = 96;

/// `multiprocessors` 0: the GPU's. One takes large tiles, and warps with less of k each.
struct Run {
  int64_t rows;
  int32_t multiprocessors;
};
// The first one's are the rows that all are held against.
constexpr std::array<Run, 7> kRuns = {{{70, 0}, {70, 1}, {40, 1}, {1, 0}, {1, 1}, {9, 0}, {9, 1}}};
constexpr int64_t kMostRows = kRuns.front().rows;

constexpr WeightLayout layout(bool gate_up) { return {kFeatures, kInner, gate_up}; }
static_assert(layout(true).elements() == layout(false).elements());
constexpr size_t kSlotBytes = sizeof(float) * kFeatures * kMostRows;

enum class Kind : uint8_t { kBias, kSilu, kResidual };
struct LinearCase {
  const char* name;
  DType dtype;
  Kind kind;
};
constexpr LinearCase kCases[] = {{"bfloat16 with a bias", DType::kBF16, Kind::kBias},
                                 {"bfloat16 with SiLU", DType::kBF16, Kind::kSilu},
                                 {"bfloat16 with a residual", DType::kBF16, Kind::kResidual},
                                 {"float16 with a bias", DType::kF16, Kind::kBias},
                                 {"float16 with SiLU", DType::kF16, Kind::kSilu},
                                 {"float16 with a residual", DType::kF16, Kind::kResidual}};

class MmaLinearTrial {
 public:
  MmaLinearTrial(CudaContext& context, TrialOp<LinearArgs> op)
      : op_(op),
        weight_(inputs_.take(2 * static_cast<size_t>(layout(false).elements()))),
        bias_(inputs_.take(2 * kFeatures)),
        x_(inputs_.take(2 * kMostRows * kInner)),
        residual_(inputs_.take(2 * kMostRows * kFeatures)),
        trial_(context, inputs_.bytes(), kRuns.size() * kSlotBytes) {}

  std::string run() {
    make_inputs();
    for (const LinearCase& one : kCases) {
      if (&one == kCases || one.dtype != (&one - 1)->dtype) multiply(one.dtype);
      for (const char* how : kTrialRuns) {
        trial_.clear_outputs();
        trial_.run(&one - kCases, [&] {
          for (size_t i = 0; i < kRuns.size(); ++i) launch(one, i);
        });
        const std::string why = compare(one);
        if (!why.empty()) return str_cat(why, " in ", one.name, how);
      }
    }
    return "";
  }

 private:
  void make_inputs() {
    std::mt19937 random(9);
    auto* const numbers = reinterpret_cast<uint16_t*>(trial_.staging());
    std::generate_n(numbers, inputs_.bytes() / 2, [&] { return random_half(random); });
    constexpr auto kStride = static_cast<size_t>(layout(false).stride());
    for (size_t i = 0; i < bias_ / 2; ++i) {
      if (i % kStride >= kInner) numbers[i] = 0;
    }
    kept_.assign(trial_.staging(), trial_.staging() + inputs_.bytes());
    trial_.upload();
  }

  float number(DType dtype, size_t place, int64_t i) const {
    return half_at(dtype, kept_.data() + place, i);
  }

  /// Products of all rows with the weight's, as they are stored, and the sums of their sizes.
  void multiply(DType dtype) {
    sums_.assign(kMostRows * kFeatures, {});
    std::vector<float> x(kMostRows * kInner), weight(kFeatures * kInner);
    for (size_t i = 0; i < x.size(); ++i) x[i] = number(dtype, x_, static_cast<int64_t>(i));
    for (int64_t i = 0; i < kFeatures * kInner; ++i) {
      weight[static_cast<size_t>(i)] =
          number(dtype, weight_, i / kInner * layout(false).stride() + i % kInner);
    }
    for (size_t i = 0; i < sums_.size(); ++i) {
      const float* const a = x.data() + i / kFeatures * kInner;
      const float* const b = weight.data() + i % kFeatures * kInner;
      for (int64_t k = 0; k < kInner; ++k) {
        const double product = double{a[k]} * b[k];
        sums_[i].value += product;
        sums_[i].size += std::abs(product);
      }
    }
  }

  static int64_t columns(const LinearCase& one) {
    return one.kind == Kind::kSilu ? kFeatures / 2 : kFeatures;
  }
  static DType out_dtype(const LinearCase& one) {
    return one.kind == Kind::kBias ? DType::kF32 : one.dtype;
  }

  void launch(const LinearCase& one, size_t run) {
    const CudaContext& context = trial_.context();
    const int64_t rows = kRuns[run].rows;
    const int32_t all = context.properties().multiprocessors;
    std::byte* const in = trial_.inputs();
    LinearArgs args{
        .dtype = one.dtype,
        .x = {in + x_, rows, kInner, kInner},
        .weight = in + weight_,
        .layout = layout(one.kind == Kind::kSilu),
        .bias = one.kind == Kind::kBias ? in + bias_ : nullptr,
        .gate_mul = one.kind == Kind::kSilu,
        .out_dtype = out_dtype(one),
        .multiprocessors = kRuns[run].multiprocessors == 0 ? all : kRuns[run].multiprocessors};
    if (one.kind == Kind::kResidual) args.residual = {in + residual_, rows, kFeatures, kFeatures};
    args.out = {trial_.outputs() + run * kSlotBytes, rows, columns(one), columns(one)};
    op_(args, context.stream());
  }

  std::string compare(const LinearCase& one) {
    trial_.download();
    const std::byte* const all = trial_.staging();
    const size_t row_bytes = static_cast<size_t>(columns(one)) * dtype_size(out_dtype(one));
    for (size_t i = 1; i < kRuns.size(); ++i) {
      const size_t bytes = static_cast<size_t>(kRuns[i].rows) * row_bytes;
      if (std::memcmp(all + i * kSlotBytes, all, bytes) != 0) {
        return str_cat("of ", kRuns[i].rows, " rows they differ");
      }
    }
    for (int64_t row = 0; row < kMostRows; ++row) {
      for (int64_t i = 0; i < columns(one); ++i) {
        const int64_t at = row * columns(one) + i;
        const double got = out_dtype(one) == DType::kF32
                               ? double{reinterpret_cast<const float*>(all)[at]}
                               : double{half_at(one.dtype, all, at)};
        const Sum want = expected(one, row, i);
        if (!(std::abs(got - want.value) <= want.size)) return "values are wrong";
      }
    }
    return "";
  }

  struct Sum {
    double value = 0.0;
    double size = 0.0;  ///< of what is added up, or how far a result may be off
  };

  /// A step of 16 k is off by as much as tensor cores leave of the sum, each step by a roundoff.
  /// Gate and up are rounded to the dtype, and so is what is made of them; silu's slope is at most
  /// 1.1. A residual is added to the rounded sum.
  Sum expected(const LinearCase& one, int64_t row, int64_t column) const {
    constexpr double kEach = (kInner + 8) * 0x1p-23, kTiny = 0x1p-24;
    const double rounding = (one.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11) * 1.01;
    const Sum* const sums = sums_.data() + row * kFeatures;
    if (one.kind == Kind::kSilu) {
      const Sum& gate = sums[layout(true).stored_row(column)];
      const Sum& up = sums[layout(true).stored_row(kFeatures / 2 + column)];
      const double silu = gate.value / (1.0 + std::exp(-gate.value));
      const double value = silu * up.value;
      const double of_gate = std::abs(gate.value) * rounding + gate.size * kEach;
      const double of_up = std::abs(up.value) * rounding + up.size * kEach;
      return {value, 1.1 * of_gate * (std::abs(up.value) + of_up) + std::abs(silu) * of_up +
                         std::abs(value) * (rounding + 0x1p-18) + kTiny};
    }
    const Sum& sum = sums[column];
    if (one.kind == Kind::kBias) {
      const double bias = number(one.dtype, bias_, column);
      return {sum.value + bias, (sum.size + std::abs(bias)) * kEach};
    }
    const double value = sum.value + number(one.dtype, residual_, row * kFeatures + column);
    return {value,
            sum.size * kEach + (1.1 * std::abs(sum.value) + std::abs(value)) * rounding + kTiny};
  }

  TrialOp<LinearArgs> op_;
  TrialPlaces inputs_;
  size_t weight_, bias_, x_, residual_;  // of inputs
  std::vector<std::byte> kept_;          // inputs
  std::vector<Sum> sums_;                // [kMostRows][kFeatures], by stored rows of the weight
  Trial trial_;
};

}  // namespace

std::string try_linears(CudaContext& context, TrialOp<LinearArgs> op) {
  return guarded(context, [&] { return MmaLinearTrial(context, op).run(); });
}

}  // namespace headrace::cuda
