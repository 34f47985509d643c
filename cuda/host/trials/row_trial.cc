#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

constexpr float kEps = 1e-5f;

struct NormCase {
  const char* name;
  DType dtype;
  int64_t cols;  ///< whole vectors of 16 bytes, or not
};
constexpr NormCase kNorms[] = {{"bfloat16", DType::kBF16, 1032}, {"float16", DType::kF16, 1001}};
constexpr int64_t kNormRows = 3, kMostCols = 1032;
constexpr size_t kNormBytes = 2 * kNormRows * kMostCols;

/// A norm with something added, then one of what that has left: the same bits.
class NormTrial {
 public:
  NormTrial(CudaContext& context, TrialOp<RmsNormArgs> op)
      : op_(op), trial_(context, 2 * kNormBytes + 2 * kMostCols, 2 * kNormBytes) {}

  std::string run() {
    for (const NormCase& one : kNorms) {
      for (const char* how : kTrialRuns) {
        std::mt19937 random(6);
        auto* const numbers = reinterpret_cast<uint16_t*>(trial_.staging());
        std::generate_n(numbers, kNormBytes + kMostCols, [&] { return random_half(random); });
        inputs_.assign(trial_.staging(), trial_.staging() + 2 * kNormBytes + 2 * kMostCols);
        trial_.upload();
        trial_.clear_outputs();
        trial_.run(&one - kNorms, [&] {
          launch(one, true);
          launch(one, false);
        });
        trial_.download();
        if (!is_right(one)) return str_cat("norms are wrong in ", one.name, how);
      }
    }
    return "";
  }

 private:
  void launch(const NormCase& one, bool adds) {
    std::byte* const in = trial_.inputs();
    RmsNormArgs args{
        .dtype = one.dtype,
        .x = {in, kNormRows, one.cols, one.cols},
        .weight = in + 2 * kNormBytes,
        .eps = kEps,
        .out = {trial_.outputs() + (adds ? 0 : kNormBytes), kNormRows, one.cols, one.cols}};
    if (adds) args.delta = {in + kNormBytes, kNormRows, one.cols, one.cols};
    op_(args, trial_.context().stream());
  }

  /// Within the rounding of a result, and some more of float32's.
  bool is_right(const NormCase& one) const {
    const std::byte* const found = trial_.staging();
    if (std::memcmp(found, found + kNormBytes, static_cast<size_t>(2 * kNormRows * one.cols)) !=
        0) {
      return false;
    }
    const double each = (one.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11) * 1.01 + 0x1p-18;
    std::vector<double> sums(static_cast<size_t>(one.cols));
    for (int64_t row = 0; row < kNormRows; ++row) {
      double squares = 0.0;
      for (int64_t i = 0; i < one.cols; ++i) {
        const int64_t at = row * one.cols + i;
        const float kept =
            rounded_to(one.dtype, half_at(one.dtype, inputs_.data(), at) +
                                      half_at(one.dtype, inputs_.data() + kNormBytes, at));
        sums[static_cast<size_t>(i)] = kept;
        squares += double{kept} * kept;
      }
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(one.cols) + kEps);
      for (int64_t i = 0; i < one.cols; ++i) {
        const double want = sums[static_cast<size_t>(i)] * factor *
                            half_at(one.dtype, inputs_.data() + 2 * kNormBytes, i);
        const double got = half_at(one.dtype, found, row * one.cols + i);
        // 2^-24: the smallest step of float16.
        if (!(std::abs(got - want) <= each * std::abs(want) + 0x1p-24)) return false;
      }
    }
    return true;
  }

  TrialOp<RmsNormArgs> op_;
  Trial trial_;
  std::vector<std::byte> inputs_;
};

// A table of more rows than are asked for. The last token's number is known on the GPU alone.
constexpr int64_t kTableRows = 13, kEmbedCols = 72, kTokens = 5;
constexpr int32_t kIds[kTokens] = {4, 12, 0, 3, 0}, kDrawnBy[kTokens] = {-1, -1, -1, -1, 1};
constexpr int32_t kDrawn[] = {2, 9}, kGathered[] = {3, 1, 4};
constexpr int32_t kFirst = 3;  // of the table's tokens: those below it give zeros

class CopyTrial {
 public:
  CopyTrial(CudaContext& context, const CopyOps& ops)
      : ops_(ops),
        table_(inputs_.take(2 * kTableRows * kEmbedCols)),
        ids_(inputs_.take(sizeof kIds)),
        drawn_by_(inputs_.take(sizeof kDrawnBy)),
        drawn_(inputs_.take(sizeof kDrawn)),
        gathered_(inputs_.take(sizeof kGathered)),
        out_(outputs_.take(2 * kTokens * kEmbedCols)),
        rows_(outputs_.take(2 * kTokens * kEmbedCols)),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run() {
    std::mt19937 random(12);
    std::byte* const to = trial_.staging();
    std::generate_n(reinterpret_cast<uint16_t*>(to), ids_ / 2, [&] { return random_half(random); });
    std::memcpy(to + ids_, kIds, sizeof kIds);
    std::memcpy(to + drawn_by_, kDrawnBy, sizeof kDrawnBy);
    std::memcpy(to + drawn_, kDrawn, sizeof kDrawn);
    std::memcpy(to + gathered_, kGathered, sizeof kGathered);
    const std::vector<std::byte> table(to, to + ids_);
    trial_.upload();
    for (const char* how : kTrialRuns) {
      trial_.clear_outputs();
      trial_.run(0, [this] { launch(); });
      trial_.download();
      if (!is_right(table.data())) return str_cat("rows are wrong", how);
    }
    return "";
  }

 private:
  static constexpr size_t kEmbedBytes = 2 * kEmbedCols;

  void launch() {
    const std::byte* const in = trial_.inputs();
    const auto list = [&](size_t place) { return reinterpret_cast<const int32_t*>(in + place); };
    const Stream stream = trial_.context().stream();
    const Matrix out{trial_.outputs() + out_, kTokens, kEmbedCols, kEmbedCols};
    ops_.embed({.dtype = DType::kBF16,
                .table = {in + table_, kTableRows, kEmbedCols, kEmbedCols},
                .token_ids = list(ids_),
                .out = out,
                .drawn_by = list(drawn_by_),
                .drawn = list(drawn_),
                .first = kFirst,
                .count = kTableRows - kFirst},
               stream);
    ops_.gather_rows(
        {.dtype = DType::kBF16,
         .x = out,
         .rows = list(gathered_),
         .out = {trial_.outputs() + rows_, std::size(kGathered), kEmbedCols, kEmbedCols}},
        stream);
  }

  bool is_right(const std::byte* table) const {
    const std::byte* const out = trial_.staging() + out_;
    const std::vector<std::byte> zeros(kEmbedBytes);
    for (size_t i = 0; i < kTokens; ++i) {
      const int32_t id = kDrawnBy[i] < 0 ? kIds[i] : kDrawn[kDrawnBy[i]];
      const std::byte* const want =
          id < kFirst ? zeros.data() : table + static_cast<size_t>(id - kFirst) * kEmbedBytes;
      if (std::memcmp(out + i * kEmbedBytes, want, kEmbedBytes) != 0) return false;
    }
    for (size_t i = 0; i < std::size(kGathered); ++i) {
      const std::byte* const want = out + static_cast<size_t>(kGathered[i]) * kEmbedBytes;
      const std::byte* const got = trial_.staging() + rows_ + i * kEmbedBytes;
      if (std::memcmp(got, want, kEmbedBytes) != 0) return false;
    }
    return true;
  }

  const CopyOps& ops_;
  TrialPlaces inputs_, outputs_;
  size_t table_, ids_, drawn_by_, drawn_, gathered_;  // of inputs
  size_t out_, rows_;                                 // of outputs
  Trial trial_;
};

// Three rows: of an adapter with two parts, of one with one of these, and of none.
constexpr int64_t kLoraRows = 3, kLoraInner = 72, kLoraCols = 40, kScratchCols = 32;
constexpr int32_t kRank = 16, kPartCols = 20, kColumns[] = {0, 20};
constexpr float kScales[] = {0.5f, -1.5f};
constexpr LoraRowArgs kAdapted[] = {{0, 0, 1}, {2, 0, 2}};

class LoraTrial {
 public:
  LoraTrial(CudaContext& context, TrialOp<LoraArgs> op, DType dtype)
      : op_(op),
        dtype_(dtype),
        x_(inputs_.take(2 * kLoraRows * kLoraInner)),
        out_(inputs_.take(2 * kLoraRows * kLoraCols)),
        a_(inputs_.take(2 * 2 * kRank * kLoraInner)),
        b_(inputs_.take(2 * 2 * kRank * kPartCols)),
        parts_(inputs_.take(2 * sizeof(LoraPartArgs))),
        rows_(inputs_.take(sizeof kAdapted)),
        sums_(outputs_.take(2 * kLoraRows * kLoraCols)),
        scratch_(outputs_.take(sizeof(float) * std::size(kAdapted) * kScratchCols)),
        trial_(context, inputs_.bytes(), outputs_.bytes()) {}

  std::string run() {
    std::mt19937 random(13);
    std::byte* const to = trial_.staging();
    std::generate_n(reinterpret_cast<uint16_t*>(to), parts_ / 2,
                    [&] { return random_half(random); });
    for (int32_t i = 0; i < 2; ++i) {
      const LoraPartArgs part{trial_.inputs() + a_ + 2 * i * kRank * kLoraInner,
                              trial_.inputs() + b_ + 2 * i * kRank * kPartCols,
                              kRank,
                              kPartCols,
                              kColumns[i],
                              i * kRank,
                              kScales[i]};
      std::memcpy(to + parts_ + static_cast<size_t>(i) * sizeof part, &part, sizeof part);
    }
    std::memcpy(to + rows_, kAdapted, sizeof kAdapted);
    kept_.assign(to, to + inputs_.bytes());
    trial_.upload();
    for (const char* how : kTrialRuns) {
      trial_.clear_outputs();
      trial_.keep(out_, sums_, 2 * kLoraRows * kLoraCols);
      trial_.run(0, [this] { launch(); });
      trial_.download();
      if (!is_right()) return str_cat("values are wrong in ", dtype_name(dtype_), how);
    }
    return "";
  }

 private:
  void launch() {
    const std::byte* const in = trial_.inputs();
    op_({.dtype = dtype_,
         .storage = dtype_,
         .x = {in + x_, kLoraRows, kLoraInner, kLoraInner},
         .parts = reinterpret_cast<const LoraPartArgs*>(in + parts_),
         .rows = reinterpret_cast<const LoraRowArgs*>(in + rows_),
         .num_rows = std::size(kAdapted),
         .max_parts = 2,
         .max_rank = kRank,
         .max_cols = kPartCols,
         .scratch = {trial_.outputs() + scratch_, std::size(kAdapted), kScratchCols, kScratchCols},
         .out = {trial_.outputs() + sums_, kLoraRows, kLoraCols, kLoraCols}},
        trial_.context().stream());
  }

  double number(size_t place, int64_t i) const { return half_at(dtype_, kept_.data() + place, i); }

  bool is_right() const {
    const double each = (dtype_ == DType::kBF16 ? 0x1p-8 : 0x1p-11);
    for (int64_t row = 0; row < kLoraRows; ++row) {
      const auto* const adapted = std::ranges::find(kAdapted, row, &LoraRowArgs::row);
      const int32_t parts = adapted == std::end(kAdapted) ? 0 : adapted->num_parts;
      for (int64_t column = 0; column < kLoraCols; ++column) {
        double want = number(out_, row * kLoraCols + column), sizes = 0.0;
        for (int32_t part = 0; part < parts; ++part) want += added(part, row, column, &sizes);
        const double got = half_at(dtype_, trial_.staging() + sums_, row * kLoraCols + column);
        const double rounding = (kLoraInner + kRank + 8) * 0x1p-23;
        if (!(std::abs(got - want) <= std::abs(want) * each + sizes * rounding)) return false;
      }
    }
    return true;
  }

  double added(int32_t part, int64_t row, int64_t column, double* sizes) const {
    const int64_t at = column - kColumns[part];
    if (at < 0 || at >= kPartCols) return 0.0;
    double sum = 0.0;
    for (int64_t r = 0; r < kRank; ++r) {
      double inner = 0.0, size = 0.0;
      for (int64_t k = 0; k < kLoraInner; ++k) {
        const double product =
            number(x_, row * kLoraInner + k) * number(a_, (part * kRank + r) * kLoraInner + k);
        inner += product;
        size += std::abs(product);
      }
      const double b = number(b_, (part * kPartCols + at) * kRank + r) * kScales[part];
      sum += inner * b;
      *sizes += size * std::abs(b);
    }
    return sum;
  }

  TrialOp<LoraArgs> op_;
  const DType dtype_;
  TrialPlaces inputs_, outputs_;
  size_t x_, out_, a_, b_, parts_, rows_;  // of inputs; those ahead of the parts are numbers
  size_t sums_, scratch_;                  // of outputs
  std::vector<std::byte> kept_;            // inputs
  Trial trial_;
};

}  // namespace

std::string try_norms(CudaContext& context, TrialOp<RmsNormArgs> op) {
  return guarded(context, [&] { return NormTrial(context, op).run(); });
}

std::string try_copies(CudaContext& context, const CopyOps& ops) {
  return guarded(context, [&] { return CopyTrial(context, ops).run(); });
}

std::string try_lora(CudaContext& context, TrialOp<LoraArgs> op, DType dtype) {
  return guarded(context, [&] { return LoraTrial(context, op, dtype).run(); });
}

}  // namespace headrace::cuda
