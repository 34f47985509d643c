#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "backend/contract/vision_ops.h"
#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr float kEps = 1e-6f;
/// Two segments, of which the first has rows for two blocks; and queries of its end alone.
constexpr int32_t kEnds[] = {72, 80};
constexpr int64_t kRows = kEnds[1], kHeads = 2, kFirst = 61;
constexpr Activation kKinds[] = {Activation::kSilu,     Activation::kGeluErf,
                                 Activation::kGeluTanh, Activation::kQuickGelu,
                                 Activation::kRelu2,    Activation::kTanh};
constexpr int64_t kNormRows = 3, kMostCols = 2 * kMaxSegmentHead;

class TowerTrial {
 public:
  TowerTrial(CudaContext& context, const TowerOps& ops, DType dtype, int32_t head_dim)
      : ops_(ops),
        dtype_(dtype),
        head_dim_(head_dim),
        all_items_(segment_items(kEnds)),
        bytes_(2 * static_cast<size_t>(kRows * width())),
        q_(inputs_.take(bytes_)),
        k_(inputs_.take(bytes_)),
        v_(inputs_.take(bytes_)),
        weight_(inputs_.take(2 * kMostCols)),
        bias_(inputs_.take(2 * kMostCols)),
        table_(inputs_.take(sizeof(float) * kNormRows * kMaxSegmentHead)),
        items_(inputs_.take(all_items_.size() * sizeof(SegmentItem))),
        attended_(outputs_.take(bytes_)),
        end_(outputs_.take(bytes_)),
        normed_(outputs_.take(norm_bytes())),
        rotated_(outputs_.take(norm_bytes())),
        activated_(outputs_.take(std::size(kKinds) * norm_bytes())),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run() {
    make_inputs();
    for (const char* how : kTrialRuns) {
      trial_.clear_outputs();
      for (size_t i = 0; i <= std::size(kKinds); ++i) {  // what changes in place
        trial_.keep(q_, i == 0 ? rotated_ : activated_ + (i - 1) * norm_bytes(), norm_bytes());
      }
      trial_.run(0, [this] { launch(); });
      trial_.download();
      const std::string why = first_.empty() ? compare() : compare_with_first();
      if (!why.empty()) {
        return str_cat(why, " in ", dtype_name(dtype_), ", heads of ", head_dim_, how);
      }
      if (first_.empty()) first_.assign(trial_.staging(), trial_.staging() + outputs_.bytes());
    }
    return "";
  }

 private:
  int64_t width() const { return kHeads * head_dim_; }
  /// Of the first rows' queries, padded.
  size_t norm_bytes() const {
    return round_up(2 * static_cast<size_t>(kNormRows * width()), size_t{256});
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim_)); }
  double rounding() const { return dtype_ == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

  void make_inputs() {
    std::mt19937 random(11);
    std::byte* const to = trial_.staging();
    std::generate_n(reinterpret_cast<uint16_t*>(to), table_ / 2,
                    [&] { return random_half(random); });
    auto* const table = reinterpret_cast<float*>(to + table_);
    for (int64_t row = 0; row < kNormRows; ++row) {
      for (int64_t i = 0; i < head_dim_ / 2; ++i) {
        const float angle = static_cast<float>(row * 31 + i);
        table[row * head_dim_ + i] = std::cos(angle);
        table[row * head_dim_ + head_dim_ / 2 + i] = std::sin(angle);
      }
    }
    std::memcpy(to + items_, all_items_.data(), all_items_.size() * sizeof(SegmentItem));
    kept_.assign(to, to + inputs_.bytes());
    trial_.upload();
  }

  void attend(int64_t first, size_t out) {
    const std::byte* const in = trial_.inputs();
    const int64_t rows = kRows - first;
    ops_.segment_attention(
        {.dtype = dtype_,
         .q = {in + q_ + 2 * first * width(), rows, width(), width()},
         .k = {in + k_, kRows, width(), width()},
         .v = {in + v_, kRows, width(), width()},
         .first = first,
         .heads = kHeads,
         .head_dim = head_dim_,
         .scale = scale(),
         .items = reinterpret_cast<const SegmentItem*>(in + items_),
         .num_items = static_cast<int32_t>(all_items_.size()),
         .out = {trial_.outputs() + out + 2 * first * width(), rows, width(), width()}},
        trial_.context().stream());
  }

  void launch() {
    const std::byte* const in = trial_.inputs();
    std::byte* const out = trial_.outputs();
    const Stream stream = trial_.context().stream();
    const auto few = [&](size_t place) { return Matrix{out + place, kNormRows, width(), width()}; };
    attend(0, attended_);
    attend(kFirst, end_);
    ops_.layer_norm({.dtype = dtype_,
                     .x = {in + q_, kNormRows, width(), width()},
                     .weight = in + weight_,
                     .bias = in + bias_,
                     .eps = kEps,
                     .out = few(normed_)},
                    stream);
    ops_.rotate({.dtype = dtype_,
                 .x = few(rotated_),
                 .table = reinterpret_cast<const float*>(in + table_),
                 .table_stride = head_dim_,
                 .heads = kHeads,
                 .head_dim = head_dim_},
                stream);
    for (size_t i = 0; i < std::size(kKinds); ++i) {
      ops_.activate({dtype_, kKinds[i], few(activated_ + i * norm_bytes())}, stream);
    }
  }

  double number(size_t place, int64_t i) const { return half_at(dtype_, kept_.data() + place, i); }
  double found(size_t place, int64_t i) const {
    return half_at(dtype_, trial_.staging() + place, i);
  }

  std::string compare() const {
    const std::byte* const all = trial_.staging();
    const auto from = static_cast<size_t>(2 * kFirst * width());
    if (std::memcmp(all + attended_ + from, all + end_ + from, bytes_ - from) != 0) {
      return "rows attended apart differ";
    }
    if (!attention_is_right()) return "attention is wrong";
    if (!norms_are_right()) return "layer norms are wrong";
    if (!turns_are_right()) return "rotations are wrong";
    return activations_are_right() ? "" : "activations are wrong";
  }

  std::string compare_with_first() const {
    return std::equal(first_.begin(), first_.end(), trial_.staging()) ? "" : "results differ";
  }

  /// As for the attention of decoders: scores, exponentials and sums are off by so much, weights
  /// are rounded, and results.
  bool attention_is_right() const {
    const double d = head_dim_;
    const double bound = 2.0 * (4.0 * (8.0 * std::sqrt(d) * (d + 3) + 64) * 0x1p-24 + rounding());
    std::vector<double> weights, values(static_cast<size_t>(head_dim_));
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t first = row < kEnds[0] ? 0 : kEnds[0], end = row < kEnds[0] ? kEnds[0] : kRows;
      for (int64_t column = 0; column < width(); column += head_dim_) {
        double total = 0.0;
        std::ranges::fill(values, 0.0);
        for (int64_t key = first; key < end; ++key) {
          double score = 0.0;
          for (int64_t i = column; i < column + head_dim_; ++i) {
            score += number(q_, row * width() + i) * number(k_, key * width() + i);
          }
          const double weight = std::exp(score * scale());
          total += weight;
          for (int64_t i = 0; i < head_dim_; ++i) {
            values[static_cast<size_t>(i)] += weight * number(v_, key * width() + column + i);
          }
        }
        for (int64_t i = 0; i < head_dim_; ++i) {
          const double want = values[static_cast<size_t>(i)] / total;
          const double got = found(attended_, row * width() + column + i);
          if (!(std::abs(got - want) <= bound + std::abs(want) * rounding())) return false;
        }
      }
    }
    return true;
  }

  bool is_near(double got, double want, double sizes) const {
    return std::abs(got - want) <= std::abs(want) * rounding() + sizes * 0x1p-18 + 0x1p-24;
  }

  bool norms_are_right() const {
    const auto cols = static_cast<double>(width());
    for (int64_t row = 0; row < kNormRows; ++row) {
      double mean = 0.0, squares = 0.0;
      for (int64_t i = 0; i < width(); ++i) mean += number(q_, row * width() + i) / cols;
      for (int64_t i = 0; i < width(); ++i) {
        const double off = number(q_, row * width() + i) - mean;
        squares += off * off / cols;
      }
      for (int64_t i = 0; i < width(); ++i) {
        const double part =
            (number(q_, row * width() + i) - mean) / std::sqrt(squares + kEps) * number(weight_, i);
        const double bias = number(bias_, i);
        const double sizes = std::abs(part) + std::abs(bias) + 4.0;
        if (!is_near(found(normed_, row * width() + i), part + bias, sizes)) return false;
      }
    }
    return true;
  }

  bool turns_are_right() const {
    const auto* const table = reinterpret_cast<const float*>(kept_.data() + table_);
    const int64_t half = head_dim_ / 2;
    for (int64_t i = 0; i < kNormRows * width(); ++i) {
      const float* const angles = table + i / width() * head_dim_;
      const int64_t at = i % head_dim_, pair = at % half;
      const double other = number(q_, at < half ? i + half : i - half);
      const double turned =
          number(q_, i) * angles[pair] + (at < half ? -1.0 : 1.0) * other * angles[half + pair];
      if (!is_near(found(rotated_, i), turned, 4.0)) return false;
    }
    return true;
  }

  static double activated(Activation kind, double x) {
    switch (kind) {
      case Activation::kSilu:
        return x / (1.0 + std::exp(-x));
      case Activation::kGeluErf:
        return x * (1.0 + std::erf(x / std::numbers::sqrt2)) / 2.0;
      case Activation::kGeluTanh:
        return x *
               (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x))) /
               2.0;
      case Activation::kTanh:
        return std::tanh(x);
      case Activation::kQuickGelu:
        break;
      case Activation::kRelu2:
        return x < 0.0 ? 0.0 : x * x;
    }
    return x / (1.0 + std::exp(-1.702 * x));
  }

  bool activations_are_right() const {
    for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
      for (int64_t i = 0; i < kNormRows * width(); ++i) {
        const double want = activated(kKinds[kind], number(q_, i));
        if (!is_near(found(activated_ + kind * norm_bytes(), i), want, 2.0)) return false;
      }
    }
    return true;
  }

  const TowerOps& ops_;
  const DType dtype_;
  const int32_t head_dim_;
  const std::vector<SegmentItem> all_items_;
  const size_t bytes_;  // of queries, keys or values
  TrialPlaces inputs_, outputs_;
  size_t q_, k_, v_, weight_, bias_, table_, items_;      // of inputs; numbers up to the table
  size_t attended_, end_, normed_, rotated_, activated_;  // of outputs
  std::vector<std::byte> first_;                          // outputs, launched
  std::vector<std::byte> kept_;                           // inputs
  Trial trial_;
};

}  // namespace

std::string try_towers(CudaContext& context, const TowerOps& ops, DType dtype, int32_t head_dim) {
  return guarded(context, [&] { return TowerTrial(context, ops, dtype, head_dim).run(); });
}

}  // namespace headrace::cuda
