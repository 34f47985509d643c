#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

// A chunk of kChunk tokens behind others, in long pieces, and its last token once more as a decode
// beside it, in a short piece for each of two splits.
constexpr int32_t kTokens = 290, kChunk = 40, kRows = kChunk + 1;
constexpr int32_t kHeads = 2, kKvHeads = 1, kBlockSize = 16;
constexpr int32_t kBlocks = (kTokens + kBlockSize - 1) / kBlockSize;
static_assert(kTokens > kSplitKeys && kTokens <= 2 * kSplitKeys && kChunk * 2 > kShortRows);

struct AttentionCase {
  const char* name;
  DType dtype;
  int32_t head_dim;
};

constexpr AttentionCase kCases[] = {{"bfloat16, heads of 64", DType::kBF16, 64},
                                    {"bfloat16, heads of 128", DType::kBF16, 128},
                                    {"float16, heads of 128", DType::kF16, 128}};

/// Of one case.
class AttentionTrial {
 public:
  AttentionTrial(CudaContext& context, TrialOp<AttentionArgs> op, const AttentionCase& one,
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
        return str_cat("a decode and a prompt differ in ", case_.name, how);
      }
      if (!values_are_right()) return str_cat("values are wrong in ", case_.name, how);
    }
    return "";
  }

 private:
  int64_t width() const { return int64_t{kHeads} * case_.head_dim; }
  size_t row_bytes() const { return 2 * static_cast<size_t>(width()); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(case_.head_dim)); }
  KvLayout layout() const { return {kKvHeads, kBlockSize, case_.head_dim}; }
  size_t cache_numbers() const { return static_cast<size_t>(kBlocks * layout().block_elements()); }
  const std::byte* row(int64_t number) const {
    return trial_->staging() + out_ + static_cast<size_t>(number) * row_bytes();
  }

  void plan() {
    const AttentionKind kind{case_.dtype, case_.dtype, case_.head_dim, kBlockSize, scale()};
    const SeqSlice seqs[] = {{0, kChunk, kTokens - kChunk, {}}, {kChunk, 1, kTokens - 1, {}}};
    for (const bool plain : {false, true}) {
      Work& work = plain ? plain_work_ : work_;
      work.shape = {.num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = case_.head_dim};
      if (!plain) work.shape.long_rows = attention_long_rows(kind, has_wgmma_);
      plan_attention(seqs, work.shape, 8, &work.plan);
    }
  }

  void place() {
    q_ = inputs_.take(kRows * row_bytes());
    keys_ = inputs_.take(2 * cache_numbers());
    values_ = inputs_.take(2 * cache_numbers());
    tables_ = inputs_.take(2 * kBlocks * sizeof(int32_t));
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
    auto* const tables = reinterpret_cast<int32_t*>(to + tables_);
    for (int32_t i = 0; i < 2 * kBlocks; ++i) tables[i] = (i + 1) * 7 % kBlocks;
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
         .cache_dtype = case_.dtype,
         .shape = work.shape,
         .scale = scale(),
         .q = {in + q_, kRows, width(), width()},
         .out = {trial_->outputs() + out_, kRows, width(), width()},
         .layout = layout(),
         .keys = in + keys_,
         .values = in + values_,
         .num_blocks = kBlocks,
         .block_tables = reinterpret_cast<const int32_t*>(in + tables_),
         .table_stride = kBlocks,
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
  // see weights rounded to the dtype. Both kinds round what they give once.
  bool values_are_right() const {
    const double d = case_.head_dim;
    const double sums = (8.0 * std::sqrt(d) * (d + 3) + 64) * 0x1p-24;
    const double rounding = case_.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
    const auto number = [&](const std::byte* numbers, int64_t i) {
      uint16_t bits = 0;
      std::memcpy(&bits, numbers + 2 * i, sizeof(bits));
      return double{case_.dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits)};
    };
    for (int64_t i = 0; i < kRows * width(); ++i) {
      const double found = number(row(0), i), plain = number(plain_.data(), i);
      const double bound =
          2.0 * (4.0 * sums + rounding) + (std::abs(found) + std::abs(plain)) * rounding;
      if (!(std::abs(found - plain) <= bound)) return false;
    }
    return true;
  }

  /// Of the kernels on trial, or of the plain ones: places are of inputs or outputs.
  struct Work {
    AttentionShape shape;
    AttentionPlan plan;
    size_t short_items = 0, long_items = 0, counts = 0, partials = 0, counters = 0;
  };

  TrialOp<AttentionArgs> op_;
  const AttentionCase& case_;
  bool has_wgmma_;
  Work work_, plain_work_;
  TrialPlaces inputs_, outputs_;
  size_t q_ = 0, keys_ = 0, values_ = 0, tables_ = 0;  // of inputs; the first three are numbers
  size_t out_ = 0;                                     // of outputs
  std::vector<std::byte> plain_;                       // what plain kernels have left there
  std::optional<Trial> trial_;
};

}  // namespace

std::string try_attention(CudaContext& context, TrialOp<AttentionArgs> op, bool has_wgmma) {
  return guarded(context, [&]() -> std::string {
    for (const AttentionCase& one : kCases) {
      const std::string why = AttentionTrial(context, op, one, has_wgmma).run();
      if (!why.empty()) return why;
    }
    return "";
  });
}

}  // namespace headrace::cuda
