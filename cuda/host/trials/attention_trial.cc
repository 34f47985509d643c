#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

// A chunk of kChunk tokens behind others, in long pieces, and its last token once more as a decode
// beside it, in a short piece for each of two splits.
constexpr int32_t kTokens = 290, kChunk = 40, kRows = kChunk + 1;
constexpr int32_t kHeads = 2, kKvHeads = 1;
static_assert(kTokens > kSplitKeys && kTokens <= 2 * kSplitKeys && kChunk * 2 > kShortRows);

constexpr AttentionHeads kCases[] = {{DType::kBF16, DType::kBF16, 64},
                                     {DType::kBF16, DType::kBF16, 128},
                                     {DType::kF16, DType::kF16, 128}};
constexpr AttentionHeads kCodeCases[] = {{DType::kBF16, DType::kI8, 128},
                                         {DType::kF16, DType::kF8E4M3, 64},
                                         {DType::kBF16, DType::kU4, 128}};

std::string name_of(const AttentionHeads& one) {
  return str_cat(one.cache == DType::kF8E4M3 ? "fp8" : dtype_name(one.cache),
                 one.latent ? ", latent rows of " : ", heads of ", one.head_dim);
}

/// A token's head of a cache of codes: numbers are at most 2.
void make_codes(DType dtype, std::mt19937& random, std::byte* codes, int64_t bytes,
                uint32_t* scales) {
  std::generate_n(codes, bytes, [&] {
    const uint32_t byte = random() & 0xff;
    if (dtype == DType::kI8) return static_cast<std::byte>(std::max(byte, 1u));
    if (dtype == DType::kU4 || (byte & 0x7f) != 0x7f) return static_cast<std::byte>(byte);
    return std::byte{0};
  });
  if (dtype == DType::kU4) {  // from -2 on
    *scales = f32_to_bf16(1.0f / static_cast<float>(4 + random() % 28)) |
              uint32_t{f32_to_bf16(-2.0f)} << 16;
    return;
  }
  const float step =
      (dtype == DType::kI8 ? 2.0f / 127 : 2.0f / 448) / static_cast<float>(1 + random() % 8);
  std::memcpy(scales, &step, sizeof(step));
}

/// Of one case.
class AttentionTrial {
 public:
  AttentionTrial(CudaContext& context, TrialOp<AttentionArgs> op, const AttentionHeads& one,
                 bool has_wgmma)
      : op_(op), case_(one), has_wgmma_(has_wgmma) {
    plan();
    place();
    trial_.emplace(context, inputs_.bytes(), outputs_.bytes());
  }

  std::string run() {
    make_inputs();
    trial_->clear_outputs();
    launch(true);
    trial_->download();
    plain_.assign(trial_->staging() + out_, trial_->staging() + out_ + kRows * row_bytes());
    for (const char* how : kTrialRuns) {
      trial_->clear_outputs();
      trial_->run(0, [&] { launch(false); });
      trial_->download();
      if (std::memcmp(row(kRows - 1), row(kRows - 2), row_bytes()) != 0) {
        return str_cat("a decode and a prompt differ in ", name_of(case_), how);
      }
      if (!values_are_right()) return str_cat("values are wrong in ", name_of(case_), how);
    }
    return "";
  }

  /// Of plain kernels, against what the host makes of caches of 16 bits.
  std::string run_plain() {
    make_inputs();
    const std::vector<std::byte> inputs(trial_->staging(), trial_->staging() + inputs_.bytes());
    const std::vector<double> wanted = host_values(inputs.data());
    for (const char* how : kTrialRuns) {
      trial_->clear_outputs();
      trial_->run(1, [&] { launch(true); });
      trial_->download();
      for (int64_t i = 0; i < kRows * width(); ++i) {
        const double want = wanted[static_cast<size_t>(i)];
        const double error = std::abs(half_at(case_.dtype, row(0), i) - want);
        if (!(error <= 8.0 * sums_error() + 1.01 * std::abs(want) * rounding())) {
          return str_cat("values are wrong in ", name_of(case_), how);
        }
      }
    }
    return "";
  }

 private:
  int64_t width() const { return int64_t{kHeads} * case_.head_dim; }
  size_t row_bytes() const { return 2 * static_cast<size_t>(width()); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(case_.head_dim)); }
  KvLayout layout() const { return KvLayout::dense(kKvHeads, case_.block_size, case_.head_dim); }
  int32_t blocks() const { return (kTokens + case_.block_size - 1) / case_.block_size; }
  bool has_codes() const { return kv_has_scales(case_.cache); }
  int64_t cache_rows() const { return blocks() * layout().block_rows(); }
  int64_t cache_row_bytes() const { return kv_row_bytes(case_.cache, case_.head_dim); }
  size_t scale_bytes() const {
    return static_cast<size_t>(has_codes() ? cache_rows() * kKvScaleBytes : 0);
  }
  const std::byte* row(int64_t number) const {
    return trial_->staging() + out_ + static_cast<size_t>(number) * row_bytes();
  }

  void plan() {
    const SeqSlice seqs[] = {{0, kChunk, kTokens - kChunk, {}}, {kChunk, 1, kTokens - 1, {}}};
    for (const bool plain : {false, true}) {
      Work& work = plain ? plain_work_ : work_;
      work.shape = {.num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = case_.head_dim};
      work.shape.long_rows = attention_long_rows(case_.kind(scale()), has_wgmma_ && !plain);
      plan_attention(seqs, work.shape, 8, &work.plan);
    }
  }

  void place() {
    q_ = inputs_.take(kRows * row_bytes());
    const auto cache_bytes = static_cast<size_t>(cache_rows() * cache_row_bytes());
    keys_ = inputs_.take(cache_bytes);
    values_ = case_.latent ? keys_ : inputs_.take(cache_bytes);
    for (size_t* scales : {&key_scales_, &value_scales_}) *scales = inputs_.take(scale_bytes());
    tables_ = inputs_.take(2 * static_cast<size_t>(blocks()) * sizeof(int32_t));
    out_ = outputs_.take(kRows * row_bytes());
    for (Work* work : {&work_, &plain_work_}) {
      work->short_items = inputs_.take(work->plan.short_items.size() * sizeof(AttentionItem));
      work->long_items = inputs_.take(work->plan.long_items.size() * sizeof(AttentionItem));
      work->counts = inputs_.take(2 * sizeof(int32_t));
      work->partials = outputs_.take(attention_partial_bytes(work->plan.num_partials, work->shape));
      work->counters = outputs_.take(attention_counter_bytes(2, work->shape));
    }
  }

  void make_inputs() {
    std::mt19937 random(2);
    std::byte* const to = trial_->staging();
    auto* const numbers = reinterpret_cast<uint16_t*>(to);
    std::generate_n(numbers, tables_ / 2, [&] { return random_half(random); });
    std::memcpy(to + q_ + (kRows - 1) * row_bytes(), to + q_ + (kRows - 2) * row_bytes(),
                row_bytes());
    for (int64_t row = 0; has_codes() && row < cache_rows(); ++row) {
      const int64_t bytes = cache_row_bytes();
      for (const auto& [codes, scales] :
           {std::pair{keys_, key_scales_}, std::pair{values_, value_scales_}}) {
        make_codes(case_.cache, random, to + codes + row * bytes, bytes,
                   reinterpret_cast<uint32_t*>(to + scales) + row);
      }
    }
    auto* const tables = reinterpret_cast<int32_t*>(to + tables_);
    for (int32_t i = 0; i < 2 * blocks(); ++i) tables[i] = (i + 1) * 7 % blocks();
    for (const Work* work : {&work_, &plain_work_}) {
      const AttentionPlan& plan = work->plan;
      const int32_t counts[] = {static_cast<int32_t>(plan.short_items.size()),
                                static_cast<int32_t>(plan.long_items.size())};
      std::memcpy(to + work->counts, counts, sizeof(counts));
      std::ranges::copy(plan.short_items, reinterpret_cast<AttentionItem*>(to + work->short_items));
      std::ranges::copy(plan.long_items, reinterpret_cast<AttentionItem*>(to + work->long_items));
    }
    trial_->upload();
  }

  void launch(bool plain) {
    const Work& work = plain ? plain_work_ : work_;
    const CudaContext& context = trial_->context();
    std::byte* const in = trial_->inputs();
    const auto* const counts = reinterpret_cast<const int32_t*>(in + work.counts);
    const auto list = [&](size_t place, const std::vector<AttentionItem>& items, int32_t which) {
      return WorkList<AttentionItem>{reinterpret_cast<const AttentionItem*>(in + place),
                                     counts + which, static_cast<int32_t>(items.size())};
    };
    op_({.dtype = case_.dtype,
         .cache_dtype = case_.cache,
         .shape = work.shape,
         .scale = scale(),
         .q = {in + q_, kRows, width(), width()},
         .out = {trial_->outputs() + out_, kRows, width(), width()},
         .layout = layout(),
         .latent = case_.latent,
         .keys = in + keys_,
         .values = in + values_,
         .key_scales = has_codes() ? in + key_scales_ : nullptr,
         .value_scales = has_codes() ? in + value_scales_ : nullptr,
         .num_blocks = blocks(),
         .block_tables = reinterpret_cast<const int32_t*>(in + tables_),
         .table_stride = blocks(),
         .short_items = list(work.short_items, work.plan.short_items, 0),
         .long_items = list(work.long_items, work.plan.long_items, 1),
         .partials = reinterpret_cast<float*>(trial_->outputs() + work.partials),
         .counters = reinterpret_cast<int32_t*>(trial_->outputs() + work.counters),
         .multiprocessors = context.properties().multiprocessors,
         .has_wgmma = has_wgmma_ && !plain,
         .plain = plain},
        context.stream());
  }

  // Numbers are at most 2. A score, at most 4 * sqrt(d), is off by at most (d + 3) roundoffs of
  // that, twice that relative in a weight; exponentials, sums and folds add 64 more. Tensor cores
  // see weights rounded to the dtype. Both kinds round what they give once. Of codes they see what
  // is up to twice as large as the numbers, and weights rounded to float16.
  bool values_are_right() const {
    const double products =
        has_codes() ? 2.0 * (8.0 * sums_error() + 0x1p-10) : 4.0 * sums_error() + rounding();
    const auto number = [&](const std::byte* numbers, int64_t i) {
      return double{half_at(case_.dtype, numbers, i)};
    };
    for (int64_t i = 0; i < kRows * width(); ++i) {
      const double found = number(row(0), i), plain = number(plain_.data(), i);
      const double bound = 2.0 * products + (std::abs(found) + std::abs(plain)) * rounding();
      if (!(std::abs(found - plain) <= bound)) return false;
    }
    return true;
  }

  double sums_error() const {
    const double d = case_.head_dim;
    return (8.0 * std::sqrt(d) * (d + 3) + 64) * 0x1p-24;
  }
  double rounding() const { return case_.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11; }

  std::vector<double> host_values(const std::byte* inputs) const {
    const auto* const tables = reinterpret_cast<const int32_t*>(inputs + tables_);
    const int64_t d = case_.head_dim;
    std::vector<double> out(static_cast<size_t>(kRows * width()));
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t seq = i / kChunk, tokens = seq > 0 ? kTokens : kTokens - kChunk + i + 1;
      for (int64_t first = i * width(); first < (i + 1) * width(); first += d) {
        double total = 0.0;
        for (int64_t token = 0; token < tokens; ++token) {
          const int64_t block = tables[seq * blocks() + token / case_.block_size];
          const int64_t key =
              d * layout().row(block * case_.block_size + token % case_.block_size, 0);
          double score = 0.0;
          for (int64_t k = 0; k < d; ++k) {
            score += double{half_at(case_.dtype, inputs + q_, first + k)} *
                     half_at(case_.dtype, inputs + keys_, key + k);
          }
          const double weight = std::exp(score * scale());
          total += weight;
          for (int64_t k = 0; k < d; ++k) {
            out[static_cast<size_t>(first + k)] +=
                weight * half_at(case_.dtype, inputs + values_, key + k);
          }
        }
        for (int64_t k = 0; k < d; ++k) out[static_cast<size_t>(first + k)] /= total;
      }
    }
    return out;
  }

  /// Of the kernels on trial, or of the plain ones: places are of inputs or outputs.
  struct Work {
    AttentionShape shape;
    AttentionPlan plan;
    size_t short_items = 0, long_items = 0, counts = 0, partials = 0, counters = 0;
  };

  TrialOp<AttentionArgs> op_;
  const AttentionHeads& case_;
  bool has_wgmma_;
  Work work_, plain_work_;
  TrialPlaces inputs_, outputs_;
  // Of inputs; those ahead of the tables are numbers.
  size_t q_ = 0, keys_ = 0, values_ = 0, key_scales_ = 0, value_scales_ = 0, tables_ = 0;
  size_t out_ = 0;                // of outputs
  std::vector<std::byte> plain_;  // what plain kernels have left there
  std::optional<Trial> trial_;
};

std::string try_cases(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma,
                      std::span<const AttentionHeads> cases) {
  return guarded(context, [&]() -> std::string {
    for (const AttentionHeads& one : cases) {
      const std::string why = AttentionTrial(context, op, one, has_wgmma).run();
      if (!why.empty()) return why;
    }
    return "";
  });
}

}  // namespace

std::string try_attention(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma) {
  return try_cases(context, op, has_wgmma, kCases);
}

std::string try_code_attention(CudaContext& context, TrialOp<AttentionArgs> op) {
  return try_cases(context, op, false, kCodeCases);
}

std::string try_heads(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma,
                      const AttentionHeads& heads) {
  return try_cases(context, op, has_wgmma && !kv_has_scales(heads.cache), {&heads, 1});
}

std::string try_plain_heads(CudaContext& context, TrialOp<AttentionArgs> op,
                            const AttentionHeads& heads) {
  return guarded(context, [&] { return AttentionTrial(context, op, heads, false).run_plain(); });
}

}  // namespace headrace::cuda
