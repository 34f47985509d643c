// What bfloat16 does to the choices of routers: no more than it does to transformers' own.

#include <gtest/gtest.h>

#include <cmath>

#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/uploaded.h"

namespace headrace {
namespace {

/// A routing: by what each row chooses, and what it chose.
struct Routing {
  int64_t experts = 0, top_k = 0;
  std::vector<float> scores;  ///< [rows][experts]
  std::vector<int32_t> ids;   ///< [rows][top_k]
};

/// Keeps each step's routings.
class WatchedBackend final : public cuda::CudaBackend {
 public:
  using CudaBackend::CudaBackend;

  void route(TensorView x, const PackedWeight& gate, TensorView logit_bias, TensorView correction,
             const RouterSpec& spec, TensorView ids, TensorView weights) override {
    CudaBackend::route(x, gate, logit_bias, correction, spec, ids, weights);
    if (!watching) return;
    Routing out{spec.num_experts, spec.top_k, {}, {}};
    out.ids.resize(static_cast<size_t>(x.rows() * spec.top_k));
    EXPECT_EQ(ids.row_stride, spec.top_k);
    read_back(ids.data, out.ids.data(), out.ids.size() * sizeof(int32_t));
    // The scores of all: as if it chose them all.
    RouterSpec all = spec;
    all.top_k = spec.num_experts;
    all.normalize = false;
    all.scale = 1.0f;
    const Uploaded scores(*this, DType::kF32, x.rows(), all.top_k);
    const Buffer all_ids = allocate(scores.view().shape.elements() * sizeof(int32_t));
    CudaBackend::route(x, gate, logit_bias, {}, all,
                       TensorView(all_ids.data, DType::kI32, {x.rows(), all.top_k}), scores.view());
    out.scores = scores.read();
    if (correction.data != nullptr) {
      std::vector<float> added(static_cast<size_t>(spec.num_experts));
      read_back(correction.data, added.data(), added.size() * sizeof(float));
      for (size_t i = 0; i < out.scores.size(); ++i) out.scores[i] += added[i % added.size()];
    }
    routings.push_back(std::move(out));
  }

  bool watching = false;
  std::vector<Routing> routings;
};

using Rows = std::vector<std::vector<float>>;

/// All rows of a golden text, fed with its tokens.
struct Text {
  Rows logits;
  std::vector<std::vector<Routing>> steps;  ///< of each step its layers
};

std::vector<Text> run_texts(const GoldenCase& golden, DType dtype) {
  cuda::EmulatedGpu gpu;
  const auto backend = std::make_shared<WatchedBackend>(
      gpu.api, CudaBackendOptions{.storage = dtype, .record_steps = false});
  DecoderHarness harness(backend, golden.folder, {.storage = dtype, .kv_dtype = dtype});
  backend->watching = true;
  std::vector<Text> out;
  for (const GoldenPrompt& entry : golden.prompts) {
    Text text;
    const auto step = [&](const std::vector<int32_t>& tokens) {
      for (auto& row : harness.step({{0, tokens}})) text.logits.push_back(std::move(row));
      text.steps.push_back(std::move(backend->routings));
      backend->routings.clear();
    };
    harness.start(0, static_cast<int32_t>(entry.prompt.size()));
    step(entry.prompt);
    for (size_t s = 0; s + 1 < entry.tokens.size(); ++s) step({entry.tokens[s]});
    out.push_back(std::move(text));
  }
  return out;
}

/// choices.json's numbers, of one run against another.
struct Measured {
  int64_t rows = 0, other_choices = 0, same_rows = 0;
  double squares = 0.0;
  size_t logits = 0;
  std::vector<float> errors;  ///< of scores, the largest of each row and layer

  /// Rows from `first` on, of one step.
  void add(const Text& exact, const Text& rough, size_t step, size_t first) {
    const std::vector<Routing>&a = exact.steps[step], &b = rough.steps[step];
    ASSERT_EQ(a.size(), b.size());
    const size_t count = a[0].ids.size() / static_cast<size_t>(a[0].top_k);
    std::vector<bool> other(count);
    for (size_t layer = 0; layer < a.size(); ++layer) {
      const auto k = static_cast<size_t>(a[layer].top_k);
      const auto experts = static_cast<size_t>(a[layer].experts);
      for (size_t row = 0; row < count; ++row) {
        const auto* ids = &a[layer].ids[row * k];
        const bool differs = !std::equal(ids, ids + k, &b[layer].ids[row * k]);
        other_choices += differs ? 1 : 0;
        other[row] = other[row] || differs;
        float error = 0.0f;
        for (size_t e = row * experts; e < (row + 1) * experts; ++e) {
          error = std::max(error, std::abs(a[layer].scores[e] - b[layer].scores[e]));
        }
        errors.push_back(error);
      }
    }
    for (size_t row = 0; row < count; ++row) {
      ++rows;
      if (other[row]) continue;
      ++same_rows;
      const std::vector<float>&want = exact.logits[first + row], &got = rough.logits[first + row];
      for (size_t i = 0; i < want.size(); ++i, ++logits) {
        squares += std::pow(double{got[i]} - double{want[i]}, 2);
      }
    }
  }
};

class CudaChoices : public testing::TestWithParam<std::string> {};

// float32 on this backend says what transformers say (cuda_golden_test), choices and all: they are
// no near misses there. In bfloat16 some are. Three things are held to transformers' own run:
// - Scores are as near to float32's, by the median over rows and layers, which rows behind other
//   choices don't move.
// - So many choices are others as there: two counts of rare events, of which this one may be larger
//   by two standard deviations of their difference.
// - Rows whose experts are the same have errors of one size. They still attend to rows with others,
//   how many of which lie near is luck: the root mean square may be a tenth larger.
TEST_P(CudaChoices, AreAsTransformersOwn) {
  const GoldenCase golden = load_golden_case(GetParam());
  const Json all =
      Json::parse(read_golden_text(std::filesystem::path(HEADRACE_GOLDEN_DIR) / "choices.json"));
  const Json& theirs = all.at(GetParam());
  const std::vector<Text> exact = run_texts(golden, DType::kF32);
  const std::vector<Text> rough = run_texts(golden, DType::kBF16);
  Measured ours;
  for (size_t t = 0; t < exact.size(); ++t) {
    for (size_t step = 0, row = 0; step < exact[t].steps.size(); ++step) {
      ours.add(exact[t], rough[t], step, row);
      row += step == 0 ? golden.prompts[t].prompt.size() : 1;
    }
  }
  EXPECT_EQ(ours.rows, theirs.at("rows").get<int64_t>());
  std::nth_element(ours.errors.begin(), ours.errors.begin() + ssize_t(ours.errors.size() / 2),
                   ours.errors.end());
  const double error = double{ours.errors[ours.errors.size() / 2]};
  const double rms = std::sqrt(ours.squares / static_cast<double>(ours.logits));
  const auto count = theirs.at("other_choices").get<double>();
  RecordProperty("score_error_share", str_cat(error / theirs.at("score_error").get<double>()));
  RecordProperty("other_choices", str_cat(ours.other_choices, " to ", count));
  RecordProperty("rms_share", str_cat(rms / theirs.at("same_rows_rms").get<double>()));
  EXPECT_LE(error, theirs.at("score_error").get<double>());
  EXPECT_LE(static_cast<double>(ours.other_choices), count + 2 * std::sqrt(2 * count));
  EXPECT_LE(rms, 1.1 * theirs.at("same_rows_rms").get<double>());
}

std::string name_of(const testing::TestParamInfo<std::string>& test) { return test.param; }

INSTANTIATE_TEST_SUITE_P(Cases, CudaChoices, testing::Values("qwen3_moe"), name_of);
// The others: `tests/run goldens` runs them.
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaChoices,  // a minute in the emulation
                         testing::Values("ernie4_5_moe", "ernie4_5_moe_interval", "mixtral",
                                         "mixtral_window", "qwen2_moe", "qwen3_moe_window"),
                         name_of);

}  // namespace
}  // namespace headrace
