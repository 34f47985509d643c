#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "backend/reference/reference_sample.h"
#include "base/check.h"
#include "cuda/host/trials/kernel_trials.h"
#include "cuda/host/trials/trial.h"

namespace headrace::cuda {

namespace {

// Three slices of a row, the last of them not whole (cuda/kernels/sample/sample_slices.cuh).
constexpr int32_t kVocabulary = 20011;
constexpr int64_t kStride = 20016;
constexpr int32_t kLogprobs = 5;
constexpr double kLogprobError = 1e-4;

struct SampleCase {
  const char* name;
  bool greedy = false;
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

constexpr SampleCase kCases[] = {{.name = "greedy", .greedy = true},
                                 {.name = "temperature", .temperature = 0.7f},
                                 {.name = "top-k and top-p", .top_k = 50, .top_p = 0.9f},
                                 {.name = "top-p", .top_p = 0.95f},
                                 {.name = "min-p", .temperature = 1.5f, .min_p = 0.05f}};
constexpr size_t kRows = std::size(kCases);

class SampleTrial {
 public:
  SampleTrial(CudaContext& context, TrialOp<SampleArgs> op) : op_(op) {
    logits_ = inputs_.take(kRows * kStride * sizeof(float));
    rows_ = inputs_.take(kRows * sizeof(SampleRowArgs));
    workspace_ = outputs_.take(sample_workspace_bytes(kRows, kVocabulary));
    results_ = outputs_.take(kRows * sizeof(SampleRowResult));
    top_ = outputs_.take(kRows * kLogprobs * sizeof(TokenLogprob));
    trial_.emplace(context, inputs_.bytes(), outputs_.bytes());
  }

  std::string run() {
    make_inputs();
    std::vector<std::byte> first;
    for (const char* how : kTrialRuns) {
      trial_->clear_outputs();
      trial_->run(0, [&] { launch(); });
      trial_->download();
      for (size_t i = 0; i < kRows; ++i) {
        if (!is_right(i)) return str_cat("tokens of ", kCases[i].name, " are others", how);
      }
      const std::byte* const top = trial_->staging() + top_;
      const std::byte* const end = trial_->staging() + outputs_.bytes();
      if (first.empty()) first.assign(top, end);
      if (!std::equal(first.begin(), first.end(), top)) {
        return str_cat("log-probabilities differ", how);
      }
    }
    return "";
  }

 private:
  /// Bells of logits, some tens of which matter.
  void make_inputs() {
    std::mt19937 random(3);
    std::vector<float> logits(kRows * kStride);
    for (float& logit : logits) {
      float sum = 0.0f;
      for (int32_t i = 0; i < 4; ++i) sum += static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f;
      logit = 6.0f * sum;
    }
    std::vector<SampleRowArgs> args(kRows);
    std::vector<SampleRow> rows(kRows);
    for (size_t i = 0; i < kRows; ++i) {
      const SampleCase& one = kCases[i];
      args[i] = {.seed = 7,
                 .position = i,
                 .logits_row = static_cast<int64_t>(i),
                 .top_k = one.top_k,
                 .temperature = one.temperature,
                 .top_p = one.top_p,
                 .min_p = one.min_p,
                 .num_logprobs = kLogprobs,
                 .greedy = one.greedy};
      rows[i] = {.logits_row = static_cast<int32_t>(i),
                 .greedy = one.greedy,
                 .seed = 7,
                 .position = i,
                 .temperature = one.temperature,
                 .top_k = one.top_k,
                 .top_p = one.top_p,
                 .min_p = one.min_p,
                 .num_logprobs = kLogprobs};
    }
    expected_.resize(kRows);
    reference_sample(TensorView(logits.data(), DType::kF32, {int64_t{kRows}, kStride}), kVocabulary,
                     rows, expected_);
    std::ranges::copy(logits, reinterpret_cast<float*>(trial_->staging() + logits_));
    std::ranges::copy(args, reinterpret_cast<SampleRowArgs*>(trial_->staging() + rows_));
    trial_->upload();
  }

  void launch() {
    std::byte* const out = trial_->outputs();
    op_({.logits = reinterpret_cast<float*>(trial_->inputs() + logits_),
         .stride = kStride,
         .vocab_size = kVocabulary,
         .rows = reinterpret_cast<const SampleRowArgs*>(trial_->inputs() + rows_),
         .num_rows = kRows,
         .workspace = out + workspace_,
         .results = reinterpret_cast<SampleRowResult*>(out + results_),
         .top = reinterpret_cast<TokenLogprob*>(out + top_),
         .max_logprobs = kLogprobs},
        trial_->context().stream());
  }

  bool is_right(size_t row) const {
    SampleRowResult found;
    std::memcpy(&found, trial_->staging() + results_ + row * sizeof(found), sizeof(found));
    TokenLogprob top[kLogprobs];
    std::memcpy(top, trial_->staging() + top_ + row * sizeof(top), sizeof(top));
    const SampleResult& expected = expected_[row];
    const auto near = [](float a, float b) { return std::abs(double{a} - b) <= kLogprobError; };
    return found.finite && found.token == expected.token && found.rank == expected.rank &&
           near(found.logprob, expected.logprob) && found.num_top == kLogprobs &&
           std::ranges::equal(top, expected.top, [&](const TokenLogprob& a, const TokenLogprob& b) {
             return a.token == b.token && near(a.logprob, b.logprob);
           });
  }

  TrialOp<SampleArgs> op_;
  TrialPlaces inputs_, outputs_;
  size_t logits_ = 0, rows_ = 0;                  // of inputs
  size_t workspace_ = 0, results_ = 0, top_ = 0;  // of outputs
  std::vector<SampleResult> expected_;
  std::optional<Trial> trial_;
};

}  // namespace

std::string try_sampling(CudaContext& context, TrialOp<SampleArgs> op) {
  return guarded(context, [&] { return SampleTrial(context, op).run(); });
}

}  // namespace headrace::cuda
