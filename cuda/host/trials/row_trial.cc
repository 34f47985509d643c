#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"
#include "tensor/float8.h"

namespace headrace::cuda {

namespace {

constexpr float kEps = 1e-5f;

float half(DType dtype, const std::byte* from, int64_t i) {
  uint16_t bits = 0;
  std::memcpy(&bits, from + 2 * i, sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

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
        const float sum =
            half(one.dtype, inputs_.data(), at) + half(one.dtype, inputs_.data() + kNormBytes, at);
        const float kept =
            one.dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(sum)) : f16_to_f32(f32_to_f16(sum));
        sums[static_cast<size_t>(i)] = kept;
        squares += double{kept} * kept;
      }
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(one.cols) + kEps);
      for (int64_t i = 0; i < one.cols; ++i) {
        const double want = sums[static_cast<size_t>(i)] * factor *
                            half(one.dtype, inputs_.data() + 2 * kNormBytes, i);
        const double got = half(one.dtype, found, row * one.cols + i);
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

// One query head, two of keys and values; tokens go to places in two blocks.
constexpr int64_t kTokens = 5, kSlotStep = 7;
constexpr int32_t kHeadDim = 64, kKvHeads = 2, kBlockSize = 16, kBlocks = 2;
constexpr int64_t kWidth = (1 + 2 * kKvHeads) * kHeadDim;
constexpr KvLayout kLayout{kKvHeads, kBlockSize, kHeadDim};
constexpr int64_t kCacheRows = kBlocks * kKvHeads * kBlockSize;
static_assert((kTokens - 1) * kSlotStep < int64_t{kBlocks} * kBlockSize);

struct CodeCase {
  const char* name;
  DType cache;
};
constexpr CodeCase kCodes[] = {
    {"int8", DType::kI8}, {"fp8", DType::kF8E4M3}, {"uint4", DType::kU4}};

class CodeWriteTrial {
 public:
  CodeWriteTrial(CudaContext& context, TrialOp<RopeKvWriteArgs> op)
      : op_(op),
        qkv_(inputs_.take(2 * kTokens * kWidth)),
        table_(inputs_.take(sizeof(float) * kTokens * kHeadDim)),
        slots_(inputs_.take(sizeof(int64_t) * kTokens)) {
    for (size_t part = 0; part < 2; ++part) {
      codes_[part] = outputs_.take(kCacheRows * kHeadDim);
      scales_[part] = outputs_.take(kCacheRows * kKvScaleBytes);
    }
    trial_.emplace(context, inputs_.bytes(), outputs_.bytes());
  }

  std::string run() {
    for (const CodeCase& one : kCodes) {
      for (const char* how : kTrialRuns) {
        make_inputs();
        trial_->clear_outputs();
        trial_->run(&one - kCodes, [&] { launch(one); });
        trial_->download();
        if (!is_right(one)) return str_cat("codes are wrong in ", one.name, how);
      }
    }
    return "";
  }

 private:
  void make_inputs() {
    std::mt19937 random(7);
    std::byte* const to = trial_->staging();
    auto* const numbers = reinterpret_cast<uint16_t*>(to + qkv_);
    std::generate_n(numbers, kTokens * kWidth, [&] { return random_half(random); });
    auto* const table = reinterpret_cast<float*>(to + table_);
    auto* const slots = reinterpret_cast<int64_t*>(to + slots_);
    for (int64_t t = 0; t < kTokens; ++t) {
      slots[t] = t * kSlotStep;
      for (int64_t i = 0; i < kHeadDim / 2; ++i) {
        const float angle = static_cast<float>(t * kHeadDim + i);
        table[t * kHeadDim + i] = std::cos(angle);
        table[t * kHeadDim + kHeadDim / 2 + i] = std::sin(angle);
      }
    }
    kept_.assign(to, to + inputs_.bytes());
    trial_->upload();
  }

  void launch(const CodeCase& one) {
    std::byte *const in = trial_->inputs(), *const out = trial_->outputs();
    op_({.dtype = DType::kBF16,
         .qkv = {in + qkv_, kTokens, kWidth, kWidth},
         .num_heads = 1,
         .rope_table = reinterpret_cast<const float*>(in + table_),
         .rope_stride = kHeadDim,
         .rotary_dim = kHeadDim,
         .cache_dtype = one.cache,
         .layout = kLayout,
         .keys = out + codes_[0],
         .values = out + codes_[1],
         .key_scales = out + scales_[0],
         .value_scales = out + scales_[1],
         .slots = reinterpret_cast<const int64_t*>(in + slots_)},
        trial_->context().stream());
  }

  /// What a token's head of keys (part 0) or values is, in float32.
  std::vector<float> head(int64_t token, int32_t kv_head, size_t part) const {
    const int64_t first =
        token * kWidth + (1 + static_cast<int64_t>(part) * kKvHeads + kv_head) * kHeadDim;
    std::vector<float> out(kHeadDim);
    for (int64_t i = 0; i < kHeadDim; ++i) {
      out[static_cast<size_t>(i)] = half(DType::kBF16, kept_.data() + qkv_, first + i);
    }
    const auto* const table =
        reinterpret_cast<const float*>(kept_.data() + table_) + token * kHeadDim;
    for (size_t i = 0; part == 0 && i < kHeadDim / 2; ++i) {
      const float a = out[i], b = out[i + kHeadDim / 2];
      const float cosine = table[i], sine = table[i + kHeadDim / 2];
      out[i] = a * cosine - b * sine;
      out[i + kHeadDim / 2] = b * cosine + a * sine;
    }
    return out;
  }

  /// Each number within half a step of what its code means, and the steps no larger than need be.
  bool is_right(const CodeCase& one) const {
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int32_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        for (size_t part = 0; part < 2; ++part) {
          const int64_t row = kLayout.row(token * kSlotStep, kv_head);
          const std::byte* const codes =
              trial_->staging() + codes_[part] + row * kv_row_bytes(one.cache, kHeadDim);
          uint32_t scale = 0;
          std::memcpy(&scale, trial_->staging() + scales_[part] + row * kKvScaleBytes,
                      sizeof scale);
          if (!is_near(one.cache, head(token, kv_head, part), codes, scale)) return false;
        }
      }
    }
    return true;
  }

  static bool is_near(DType cache, const std::vector<float>& numbers, const std::byte* codes,
                      uint32_t scale) {
    const auto [low, high] = std::ranges::minmax(numbers);
    const double top = std::max(std::abs(low), std::abs(high));
    const bool narrow = cache == DType::kU4;
    float step = 0.0f, from = 0.0f;
    std::memcpy(&step, &scale, sizeof step);
    if (narrow) {
      step = bf16_to_f32(static_cast<uint16_t>(scale));
      from = bf16_to_f32(static_cast<uint16_t>(scale >> 16));
    }
    const double want = narrow                ? (double{high} - low) / 15
                        : cache == DType::kI8 ? top / 127
                                              : top / 448;
    if (!(std::abs(step - want) <= want * 0x1p-6)) return false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto byte = static_cast<uint8_t>(codes[narrow ? i / 2 : i]);
      const double x = numbers[i];
      double meant = 0.0, bound = 0.51 * step;
      if (narrow) {
        meant = from + double{step} * (i % 2 == 0 ? byte & 15 : byte >> 4);
        bound += (15 * step + std::abs(from)) * 0x1p-7;  // both are bfloat16
      } else if (cache == DType::kI8) {
        meant = double{step} * (byte - 128);
      } else {
        meant = double{step} * e4m3_to_f32(byte);
        bound = std::abs(x) * 0x1.01p-4 + step * 0x1p-9;
      }
      if (!(std::abs(meant - x) <= bound)) return false;
    }
    return true;
  }

  TrialOp<RopeKvWriteArgs> op_;
  TrialPlaces inputs_, outputs_;
  size_t qkv_, table_, slots_;             // of inputs
  size_t codes_[2] = {}, scales_[2] = {};  // of outputs
  std::vector<std::byte> kept_;            // inputs
  std::optional<Trial> trial_;
};

}  // namespace

std::string try_norms(CudaContext& context, TrialOp<RmsNormArgs> op) {
  return guarded(context, [&] { return NormTrial(context, op).run(); });
}

std::string try_code_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op) {
  return guarded(context, [&] { return CodeWriteTrial(context, op).run(); });
}

}  // namespace headrace::cuda
