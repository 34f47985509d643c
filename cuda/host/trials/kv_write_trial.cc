#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"
#include "tensor/float8.h"

namespace headrace::cuda {

namespace {

constexpr float kEps = 1e-5f;

// One query head, two of keys and values; tokens go to places in two blocks.
constexpr int64_t kTokens = 5, kSlotStep = 7;
constexpr int32_t kHeadDim = 64, kKvHeads = 2, kBlockSize = 16, kBlocks = 2;
constexpr int64_t kWidth = (1 + 2 * kKvHeads) * kHeadDim;
constexpr size_t kQkvBytes = 2 * kTokens * kWidth;
constexpr KvLayout kLayout = KvLayout::dense(kKvHeads, kBlockSize, kHeadDim);
constexpr int64_t kCacheRows = kBlocks * kKvHeads * kBlockSize;
static_assert((kTokens - 1) * kSlotStep < int64_t{kBlocks} * kBlockSize);

struct WriteCase {
  const char* name;
  DType dtype, cache;
  bool norms = false;        ///< of queries and keys
  bool interleaved = false;  ///< neighbours are pairs
};
constexpr WriteCase kHalves[] = {{"bfloat16", DType::kBF16, DType::kBF16, true, false},
                                 {"float16", DType::kF16, DType::kF16, false, true}};
constexpr WriteCase kCodes[] = {{"int8", DType::kBF16, DType::kI8},
                                {"fp8", DType::kBF16, DType::kF8E4M3},
                                {"uint4", DType::kBF16, DType::kU4}};

class WriteTrial {
 public:
  WriteTrial(CudaContext& context, TrialOp<RopeKvWriteArgs> op)
      : op_(op),
        norms_(inputs_.take(size_t{2} * 2 * kHeadDim)),
        qkv_(inputs_.take(kQkvBytes)),
        table_(inputs_.take(sizeof(float) * kTokens * kHeadDim)),
        slots_(inputs_.take(sizeof(int64_t) * kTokens)) {
    rotated_ = outputs_.take(kQkvBytes);
    for (size_t part = 0; part < 2; ++part) {
      codes_[part] = outputs_.take(2 * kCacheRows * kHeadDim);
      scales_[part] = outputs_.take(kCacheRows * kKvScaleBytes);
    }
    trial_.emplace(context, inputs_.bytes(), outputs_.bytes());
  }

  std::string run(std::span<const WriteCase> cases) {
    for (const WriteCase& one : cases) {
      for (const char* how : kTrialRuns) {
        make_inputs();
        trial_->clear_outputs();
        trial_->run(&one - cases.data(), [&] { launch(one); });
        trial_->keep(qkv_, rotated_, kQkvBytes);
        trial_->download();
        const char* const what = kv_has_scales(one.cache) ? "codes" : "values";
        if (!is_right(one)) return str_cat(what, " are wrong in ", one.name, how);
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
    std::generate_n(reinterpret_cast<uint16_t*>(to + norms_), 2 * kHeadDim,
                    [&] { return random_half(random); });
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

  void launch(const WriteCase& one) {
    std::byte *const in = trial_->inputs(), *const out = trial_->outputs();
    op_({.dtype = one.dtype,
         .qkv = {in + qkv_, kTokens, kWidth, kWidth},
         .num_heads = 1,
         .q_norm = one.norms ? in + norms_ : nullptr,
         .k_norm = one.norms ? in + norms_ + 2 * kHeadDim : nullptr,
         .norm_eps = kEps,
         .rope_table = reinterpret_cast<const float*>(in + table_),
         .rope_stride = kHeadDim,
         .rotary_dim = kHeadDim,
         .interleaved = one.interleaved,
         .cache_dtype = one.cache,
         .layout = kLayout,
         .keys = out + codes_[0],
         .values = out + codes_[1],
         .key_scales = out + scales_[0],
         .value_scales = out + scales_[1],
         .slots = reinterpret_cast<const int64_t*>(in + slots_)},
        trial_->context().stream());
  }

  /// What a token's head `number` of qkv is when it is written: queries', then keys', rotated, and
  /// values'.
  std::vector<float> head(const WriteCase& one, int64_t token, int32_t number) const {
    std::vector<float> out(kHeadDim);
    double squares = 0.0;
    for (int64_t i = 0; i < kHeadDim; ++i) {
      const float x =
          half_at(one.dtype, kept_.data() + qkv_, token * kWidth + number * kHeadDim + i);
      out[static_cast<size_t>(i)] = x;
      squares += double{x} * x;
    }
    if (number > kKvHeads) return out;  // of values
    const double factor = 1.0 / std::sqrt(squares / kHeadDim + kEps);
    const std::byte* const norm = kept_.data() + norms_ + (number > 0 ? 2 * kHeadDim : 0);
    for (size_t i = 0; one.norms && i < kHeadDim; ++i) {
      out[i] =
          static_cast<float>(out[i] * factor * half_at(one.dtype, norm, static_cast<int64_t>(i)));
    }
    const auto* const table =
        reinterpret_cast<const float*>(kept_.data() + table_) + token * kHeadDim;
    for (size_t i = 0; i < kHeadDim / 2; ++i) {
      float& first = out[one.interleaved ? 2 * i : i];
      float& second = out[one.interleaved ? 2 * i + 1 : i + kHeadDim / 2];
      const float a = first, b = second, cosine = table[i], sine = table[i + kHeadDim / 2];
      first = a * cosine - b * sine;
      second = b * cosine + a * sine;
    }
    return out;
  }

  bool is_right(const WriteCase& one) const {
    const std::byte* const found = trial_->staging();
    for (int64_t token = 0; token < kTokens; ++token) {
      const std::byte* const query = found + rotated_ + 2 * token * kWidth;
      if (!is_near(one.dtype, head(one, token, 0), query)) return false;
      for (int32_t i = 0; i < 2 * kKvHeads; ++i) {
        const auto part = static_cast<size_t>(i / kKvHeads);
        const int64_t row = kLayout.row(token * kSlotStep, i % kKvHeads);
        const std::byte* const written =
            found + codes_[part] + row * kv_row_bytes(one.cache, kHeadDim);
        const std::vector<float> numbers = head(one, token, 1 + i);
        if (!kv_has_scales(one.cache)) {
          if (!is_near(one.cache, numbers, written)) return false;
          continue;
        }
        uint32_t scale = 0;
        std::memcpy(&scale, found + scales_[part] + row * kKvScaleBytes, sizeof scale);
        if (!is_near(one.cache, numbers, written, scale)) return false;
      }
    }
    return true;
  }

  /// Within the rounding of a result, and some more of float32's.
  static bool is_near(DType dtype, const std::vector<float>& numbers, const std::byte* found) {
    const double each = (dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11) * 1.01;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double got = half_at(dtype, found, static_cast<int64_t>(i)), want = numbers[i];
      if (!(std::abs(got - want) <= each * std::abs(want) + 0x1p-18)) return false;
    }
    return true;
  }

  /// Each number within half a step of what its code means, and the steps no larger than need be.
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
  size_t norms_, qkv_, table_, slots_;                   // of inputs
  size_t rotated_ = 0, codes_[2] = {}, scales_[2] = {};  // of outputs
  std::vector<std::byte> kept_;                          // inputs
  std::optional<Trial> trial_;
};

}  // namespace

std::string try_half_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op) {
  return guarded(context, [&] { return WriteTrial(context, op).run(kHalves); });
}

std::string try_code_writes(CudaContext& context, TrialOp<RopeKvWriteArgs> op) {
  return guarded(context, [&] { return WriteTrial(context, op).run(kCodes); });
}

}  // namespace headrace::cuda
