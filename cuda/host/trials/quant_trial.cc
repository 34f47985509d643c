#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "tensor/float8.h"

namespace headrace::cuda {

namespace {

// Seventeen units of 128 inputs, the last of them not whole: each of four slices has more stages of
// 64 than a ring holds.
constexpr int64_t kFeatures = 80, kInner = 2120;
constexpr int64_t kMostRows = 70;

/// A launch. `multiprocessors` 0: the GPU's. One takes large tiles, several in turn.
struct Run {
  int64_t rows;
  bool has_wgmma = false;
  int32_t multiprocessors = 0;
};
// The last one's are the rows that all are held against; up to 32 have kernels of their own.
constexpr Run kAnyGpu[] = {{1}, {9}, {kMostQuantFewRows}, {kMostRows}};
static_assert(kMostRows > kMostQuantFewRows);
// Every shape of wgmma's kernel; of the smallest, slices in a cluster and in turn.
constexpr Run kByWgmma[] = {{9, true},  {9, true, 1},         {20, true},
                            {50, true}, {kMostRows, true, 1}, {kMostRows}};

struct QuantCase {
  const char* name;
  DType dtype;
  QuantFormat format;
};

constexpr QuantCase kWhole[] = {
    {"int4 weights with zero points",
     DType::kBF16,
     {.bits = 4, .group_size = 32, .zero_points = true, .activations = Activations::kWhole}},
    {"int4 weights",
     DType::kF16,
     {.bits = 4, .group_size = 128, .f16_scales = true, .activations = Activations::kWhole}},
    {"int8 weights",
     DType::kBF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kWhole}}};
constexpr QuantCase kRounded[] = {
    {"int8 weights and rows",
     DType::kBF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kInt8Rows}},
    {"FP8 weights and rows",
     DType::kBF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Rows}},
    {"FP8 weights and rows in groups",
     DType::kF16,
     {.bits = 8, .group_size = 128, .activations = Activations::kFloat8Groups}}};

constexpr QuantLayout layout_of(const QuantFormat& format) {
  return {{kFeatures, kInner, false}, format};
}
constexpr size_t most_weight_bytes() {
  int64_t most = 0;
  for (const QuantCase& one : kWhole) most = std::max(most, layout_of(one.format).bytes());
  for (const QuantCase& one : kRounded) most = std::max(most, layout_of(one.format).bytes());
  return static_cast<size_t>(most);
}
constexpr int64_t kMostUnits = 17;
static_assert(kMostUnits == ceil_div(kInner, int64_t{kQuantUnit}));
constexpr size_t kSlotElements = kMostRows * kFeatures;
/// Codes of rows and their scales, of which 32 rows' lie side by side (RoundedRows).
constexpr size_t kRoundedBytes =
    kMostUnits * (kMostRows * kQuantUnit + (kMostRows + 31) / 32 * 32 * 4);

/// Of one case after the other.
class QuantTrial {
 public:
  QuantTrial(CudaContext& context, TrialOp<QuantLinearArgs> op, std::span<const Run> runs)
      : op_(op),
        runs_(runs),
        weight_(inputs_.take(most_weight_bytes())),
        x_(inputs_.take(2 * kMostRows * kInner)),
        out_(outputs_.take(runs.size() * kSlotElements * sizeof(float))),
        rounded_(outputs_.take(kRoundedBytes)),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run(std::span<const QuantCase> cases) {
    for (const QuantCase& one : cases) {
      make_inputs(one);
      first_.clear();
      for (const char* how : kTrialRuns) {
        trial_.clear_outputs();
        trial_.run(&one - cases.data(), [&] {
          for (size_t i = 0; i < runs_.size(); ++i) launch(one, i);
        });
        const std::string why = compare(one);
        if (!why.empty()) return str_cat(why, " with ", one.name, how);
      }
    }
    return "";
  }

 private:
  float half(DType dtype, uint16_t bits) const {
    return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }

  void make_inputs(const QuantCase& one) {
    std::mt19937 random(4);
    weights_.assign(kFeatures * kInner, 0.0);
    std::fill_n(trial_.staging(), inputs_.bytes(), std::byte{0});
    const QuantLayout layout = layout_of(one.format);
    for (int64_t row = 0; row < kFeatures; ++row) {
      if (rounds_rows(one.format)) {
        make_wide_row(layout, row, random);
      } else {
        make_row(layout, row, random);
      }
    }
    rows_.resize(kMostRows * kInner);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const uint16_t bits =
          rounds_rows(one.format) ? code_as_half(one, i, random) : random_half(random);
      std::memcpy(trial_.staging() + x_ + 2 * i, &bits, sizeof bits);
      rows_[i] = half(one.dtype, bits);
    }
    trial_.upload();
  }

  /// Scales, zeros and codes of a feature; its numbers.
  void make_row(const QuantLayout& layout, int64_t row, std::mt19937& random) {
    const QuantFormat& format = layout.format;
    std::byte* const tile = trial_.staging() + weight_ + row / kQuantTile * layout.tile_bytes();
    const int place = pair_place(static_cast<int>(row % kQuantTile));
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const uint16_t scale = random_half(random) & 0x7fff;
      std::memcpy(tile + layout.scales_at() + 2 * (group * kQuantTile + place), &scale, 2);
      int32_t zero = quant_zero(format.bits);
      if (format.zero_points) {
        zero = static_cast<int32_t>(random() % 16);
        tile[layout.zeros_at() + group * kQuantTile + place] = static_cast<std::byte>(zero);
      }
      const float step = half(format.f16_scales ? DType::kF16 : DType::kBF16, scale);
      for (int64_t i = 0; i < format.group_size; ++i) {
        const int64_t k = group * format.group_size + i;
        const auto code = k < kInner ? static_cast<int32_t>(random() % (1u << format.bits)) : zero;
        const CodePlace at = code_place(format.bits, static_cast<int>(row % kQuantTile), k);
        tile[at.byte] |= static_cast<std::byte>(code << at.bit);
        if (k < kInner)
          weights_[static_cast<size_t>(row * kInner + k)] = double{step} * (code - zero);
      }
    }
  }

  static float code_value(const QuantFormat& format, uint8_t code) {
    return has_float8(format) ? e4m3_to_f32(code) : static_cast<float>(static_cast<int8_t>(code));
  }
  static uint8_t random_int8(std::mt19937& random) {
    const auto code = static_cast<uint8_t>(random());
    return code == 0x80 ? uint8_t{0} : code;
  }

  /// Likewise of codes that meet codes.
  void make_wide_row(const QuantLayout& layout, int64_t row, std::mt19937& random) {
    std::byte* const tile = trial_.staging() + weight_ + row / kQuantTile * layout.tile_bytes();
    const int in_tile = static_cast<int>(row % kQuantTile);
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const float scale = trial_scale(random);
      std::memcpy(tile + layout.scales_at() + 4 * (group * kQuantTile + pair_place(in_tile)),
                  &scale, 4);
      const int64_t first = layout.groups() == 1 ? 0 : group * kQuantUnit;
      const int64_t end = layout.groups() == 1 ? kInner : std::min(first + kQuantUnit, kInner);
      for (int64_t k = first; k < end; ++k) {
        const uint8_t code = has_float8(layout.format) ? f32_to_e4m3(trial_weight(random, row))
                                                       : random_int8(random);
        tile[rounded_code_place(in_tile, k)] = static_cast<std::byte>(code);
        weights_[static_cast<size_t>(row * kInner + k)] =
            double{scale} * code_value(layout.format, code);
      }
    }
  }

  /// Numbers that are codes already: each 128 begin with the largest, so that scales are 1.
  uint16_t code_as_half(const QuantCase& one, size_t i, std::mt19937& random) const {
    const bool first = i % kInner % kQuantUnit == 0;
    float value = most_of(one.format);
    if (has_float8(one.format)) {
      value = trial_number(random, static_cast<int64_t>(i / kInner), first);
    } else if (!first) {
      value = code_value(one.format, random_int8(random));
    }
    return one.dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  }

  void launch(const QuantCase& one, size_t run) {
    const CudaContext& context = trial_.context();
    const int64_t rows = runs_[run].rows;
    const int32_t all = context.properties().multiprocessors, some = runs_[run].multiprocessors;
    QuantLinearArgs args{.linear = {.dtype = one.dtype,
                                    .x = {trial_.inputs() + x_, rows, kInner, kInner},
                                    .weight = trial_.inputs() + weight_,
                                    .layout = layout_of(one.format).matrix,
                                    .out_dtype = DType::kF32,
                                    .multiprocessors = some == 0 ? all : some,
                                    .has_wgmma = runs_[run].has_wgmma},
                         .format = one.format};
    if (rounds_rows(one.format)) {
      const RoundedRows rounded(layout_of(one.format), rows);
      HEADRACE_CHECK(static_cast<size_t>(rounded.bytes()) <= kRoundedBytes, rounded.bytes());
      args.rounded = trial_.outputs() + rounded_;
    }
    args.linear.out = {trial_.outputs() + out_ + run * kSlotElements * sizeof(float), rows,
                       kFeatures, kFeatures};
    op_(args, context.stream());
  }

  std::string compare(const QuantCase& one) {
    trial_.download();
    const auto* const found = reinterpret_cast<const float*>(trial_.staging() + out_);
    const float* const all = found + (runs_.size() - 1) * kSlotElements;
    for (size_t i = 0; i + 1 < runs_.size(); ++i) {
      const size_t bytes = static_cast<size_t>(runs_[i].rows * kFeatures) * sizeof(float);
      if (std::memcmp(found + i * kSlotElements, all, bytes) != 0) {
        return str_cat("of ", runs_[i].rows, " rows they differ");
      }
    }
    if (first_.empty()) {
      if (!values_are_right(one, all)) return "values are wrong";
      first_.assign(all, all + kSlotElements);
    }
    return std::equal(first_.begin(), first_.end(), all) ? "" : "values are others";
  }

  // A product of 16 or 32 k is off by as much as tensor cores leave of the sum, each step of a
  // chain by a roundoff; those of e4m3 have numbers that make none.
  bool values_are_right(const QuantCase& one, const float* all) const {
    const double each = has_float8(one.format) ? 0.0 : (kInner + 8) * 0x1p-23;
    for (int64_t row = 0; row < kMostRows; ++row) {
      for (int64_t feature = 0; feature < kFeatures; ++feature) {
        const double* const w = weights_.data() + feature * kInner;
        const float* const x = rows_.data() + row * kInner;
        double sum = 0.0, size = 0.0;
        for (int64_t k = 0; k < kInner; ++k) {
          sum += w[k] * x[k];
          size += std::abs(w[k] * x[k]);
        }
        if (!(std::abs(double{all[row * kFeatures + feature]} - sum) <= each * size)) {
          return false;
        }
      }
    }
    return true;
  }

  TrialOp<QuantLinearArgs> op_;
  std::span<const Run> runs_;
  TrialPlaces inputs_, outputs_;
  size_t weight_, x_;            // of inputs
  size_t out_, rounded_;         // of outputs
  std::vector<double> weights_;  // [kFeatures][kInner]
  std::vector<float> first_;     // results of the most rows, launched
  std::vector<float> rows_;      // [kMostRows][kInner]
  Trial trial_;
};

std::string try_cases(CudaContext& context, TrialOp<QuantLinearArgs> op,
                      std::span<const QuantCase> cases, std::span<const Run> runs) {
  return guarded(context, [&] { return QuantTrial(context, op, runs).run(cases); });
}

}  // namespace

std::string try_quant_linears(CudaContext& context, TrialOp<QuantLinearArgs> op) {
  return try_cases(context, op, kWhole, kAnyGpu);
}

std::string try_wgmma_quant_linears(CudaContext& context, TrialOp<QuantLinearArgs> op) {
  return try_cases(context, op, kWhole, kByWgmma);
}

std::string try_rounded_linears(CudaContext& context, TrialOp<QuantLinearArgs> op) {
  return try_cases(context, op, kRounded, kAnyGpu);
}

}  // namespace headrace::cuda
