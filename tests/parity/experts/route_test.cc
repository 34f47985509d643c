// route(): known answers, the reference, ties, groups, and what isn't a number.

#include <cmath>
#include <limits>
#include <set>

#include "headrace/status.h"
#include "parity/parity.h"

namespace headrace::parity {
namespace {

using Score = RouterSpec::Score;

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// x [rows][hidden] through a gate [experts][hidden]; empty bias and correction: none.
Routed run_route(Backend& backend, const RouterSpec& spec, const std::vector<float>& gate,
                 const std::vector<float>& x, const std::vector<float>& bias = {},
                 const std::vector<float>& correction = {}) {
  const int64_t experts = spec.num_experts, top_k = spec.top_k;
  const int64_t hidden = static_cast<int64_t>(gate.size()) / experts;
  const int64_t rows = static_cast<int64_t>(x.size()) / hidden;
  const auto weight = backend.pack_weight(
      {{{gate.data(), DType::kF32, experts, hidden, false, hidden}}, DType::kF32});
  const Matrix input(backend, rows, hidden, x), out(backend, rows, top_k);
  const Matrix biases(backend, 1, experts, bias), corrections(backend, 1, experts, correction);
  const Backend::Buffer ids = backend.allocate(size_t(rows * top_k) * sizeof(int32_t));
  backend.route(input.view(), *weight, bias.empty() ? TensorView() : biases.vector(),
                correction.empty() ? TensorView() : corrections.vector(), spec,
                TensorView(ids.data, DType::kI32, {rows, top_k}), out.view());
  Routed got{std::vector<int32_t>(size_t(rows * top_k)), out.values()};
  backend.read_back(ids.data, got.ids.data(), got.ids.size() * sizeof(int32_t));
  return got;
}

/// Routes rows of logits as they are, through a gate of ones on the diagonal.
Routed run_logits(Backend& backend, const RouterSpec& spec, const std::vector<float>& logits,
                  const std::vector<float>& correction = {}) {
  std::vector<float> gate(size_t(spec.num_experts) * size_t(spec.num_experts));
  for (size_t i = 0; i < size_t(spec.num_experts); ++i) gate[i * size_t(spec.num_experts) + i] = 1;
  return run_route(backend, spec, gate, logits, {}, correction);
}

void expect_route(const Routed& got, const std::vector<int32_t>& ids,
                  const std::vector<float>& weights) {
  EXPECT_EQ(got.ids, ids);
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(got.weights[i], weights[i], 5e-5f) << i;
}

std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

class RouteParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "reference") HEADRACE_REQUIRE_ISA(GetParam());
    backend_ = make_backend(GetParam());
  }
  std::unique_ptr<Backend> backend_;
};

// Four decimals, worked out from the families' rules.
TEST_P(RouteParity, KnownAnswers) {
  const std::vector<float> logits = {2, 1, 0, -1}, c = {0, 0, 0.2f, 0.6f};
  RouterSpec spec{.num_experts = 4, .top_k = 2};
  expect_route(run_logits(*backend_, spec, logits, c), {0, 3}, {0.9526f, 0.0474f});
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.7311f, 0.2689f});
  spec.score = Score::kSoftmaxAfterTopK;
  for (const bool normalize : {false, true}) {
    spec.normalize = normalize;
    expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.7311f, 0.2689f});
  }
  spec = {.num_experts = 4, .top_k = 2, .normalize = false};
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.6439f, 0.2369f});
  spec = {
      .score = Score::kSigmoid, .num_experts = 4, .top_k = 2, .norm_eps = 1e-20f, .scale = 2.5f};
  expect_route(run_logits(*backend_, spec, logits, c), {0, 3}, {1.9152f, 0.5848f});
}

TEST_P(RouteParity, TheDivisorOfWeights) {
  RouterSpec spec{.score = Score::kSigmoid, .num_experts = 2, .top_k = 2};
  const std::vector<float> logits = {0.0f, 0.0f};  // scores of a half
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.5f, 0.5f});
  spec.norm_min = 4.0f;
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.125f, 0.125f});
  spec.norm_min = 0.25f;
  spec.norm_eps = 1.0f;
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {0.25f, 0.25f});
  spec.scale = -2.0f;
  expect_route(run_logits(*backend_, spec, logits), {0, 1}, {-0.5f, -0.5f});
}

TEST_P(RouteParity, TheLowestNumberWinsATie) {
  const RouterSpec spec{.num_experts = 8, .top_k = 3};
  EXPECT_EQ(run_logits(*backend_, spec, std::vector<float>(8, 1.5f)).ids,
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(run_logits(*backend_, spec, {1, 2, 1, 3, 1, 1, 1, 1}).ids,
            (std::vector<int32_t>{0, 1, 3}));
  // Far below the largest all scores are 0.
  EXPECT_EQ(run_logits(*backend_, spec, {0, 1, 2, 3, 4, 5, 6, 500}).ids,
            (std::vector<int32_t>{0, 1, 7}));
  // The correction is added once, in float32, where 2^-20 is lost beside 32.
  EXPECT_EQ(run_logits(*backend_, {.score = Score::kSoftmaxAfterTopK, .num_experts = 3, .top_k = 1},
                       {0.0f, 0x1p-20f, 0.0f}, {32.0f, 32.0f, 31.0f})
                .ids,
            (std::vector<int32_t>{0}));
}

TEST_P(RouteParity, Groups) {
  RouterSpec spec{.score = Score::kSoftmaxAfterTopK,
                  .num_experts = 8,
                  .top_k = 2,
                  .num_groups = 4,
                  .top_groups = 2};
  // Sums of two: 9, 10, 10, 8: the first 10s, of {2, 3} and {4, 5}.
  EXPECT_EQ(run_logits(*backend_, spec, {9, 0, 4, 6, 5, 5, 8, 0}).ids,
            (std::vector<int32_t>{3, 4}));
  // The groups of 9 and of 8 alone hold larger ones, and lose.
  spec.top_groups = 1;
  EXPECT_EQ(run_logits(*backend_, spec, {9, 0, 4, 6, 5, 5, 8, 0}).ids,
            (std::vector<int32_t>{2, 3}));
  spec = {.num_experts = 4, .top_k = 2, .num_groups = 4, .top_groups = 2};
  EXPECT_EQ(run_logits(*backend_, spec, {1, 3, 2, 0}).ids, (std::vector<int32_t>{1, 2}));
  // Three in a group: its two largest count.
  spec = {.score = Score::kSoftmaxAfterTopK,
          .num_experts = 6,
          .top_k = 1,
          .num_groups = 2,
          .top_groups = 1};
  EXPECT_EQ(run_logits(*backend_, spec, {4, 4, 4, 1, 8, 1}).ids, (std::vector<int32_t>{4}));
}

/// The margin between what is chosen and what isn't.
double margin(const std::vector<double>& c, const std::vector<int32_t>& ids) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (size_t i = 0; i < c.size(); ++i) {
    const bool chosen = std::find(ids.begin(), ids.end(), static_cast<int32_t>(i)) != ids.end();
    (chosen ? least : most) = chosen ? std::min(least, c[i]) : std::max(most, c[i]);
  }
  return least - most;
}

// Against plain doubles: the same experts unless scores are too close to call, and their weights.
// A logit is off by gamma_{H+1} of the sum of its magnitudes, d at most; a softmax or sigmoid of
// such logits by a factor of e^{2d}, and by some roundoffs for each of its E terms.
TEST_P(RouteParity, MatchesDoubles) {
  Random random(91);
  SCOPED_TRACE(random.trace());
  for (const Score score : {Score::kSoftmax, Score::kSigmoid, Score::kSoftmaxAfterTopK}) {
    for (const int32_t experts : {1, 5, 64, 130, 1024}) {
      const int64_t hidden = 70, rows = 12;
      RouterSpec spec{.score = score,
                      .num_experts = experts,
                      .top_k = std::min(experts, 64),
                      .normalize = experts != 5,
                      .scale = 1.5f};
      if (experts < 1000) spec.top_k = std::min(experts, 6);
      const std::vector<float> gate = random.uniforms(experts * hidden);
      const std::vector<float> x = random.uniforms(rows * hidden);
      const std::vector<float> bias = random.uniforms(experts), c = random.uniforms(experts);
      const Routed got = run_route(*backend_, spec, gate, x, bias, c);
      const double d = (static_cast<double>(hidden) + 3.0) * kF32Roundoff * (double(hidden) + 1.0);
      const double relative = 2.0 * d + (static_cast<double>(experts) + 16.0) * 2.0 * kF32Roundoff;
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<double> l(static_cast<size_t>(experts)), p(l), choice(l);
        double sum = 0.0, total = 0.0;
        for (size_t e = 0; e < l.size(); ++e) {
          l[e] = double{bias[e]};
          for (int64_t j = 0; j < hidden; ++j) {
            l[e] +=
                double{x[size_t(row * hidden + j)]} * double{gate[e * size_t(hidden) + size_t(j)]};
          }
          sum += std::exp(l[e]);
        }
        for (size_t e = 0; e < l.size(); ++e) {
          p[e] = score == Score::kSoftmax   ? std::exp(l[e]) / sum
                 : score == Score::kSigmoid ? 1.0 / (1.0 + std::exp(-l[e]))
                                            : std::exp(l[e]);
          choice[e] = double{c[e]} + (score == Score::kSoftmaxAfterTopK ? l[e] : p[e]);
        }
        const std::vector<int32_t> ids(got.ids.begin() + row * spec.top_k,
                                       got.ids.begin() + (row + 1) * spec.top_k);
        ASSERT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), ids.size());
        ASSERT_TRUE(std::is_sorted(ids.begin(), ids.end()) && ids.front() >= 0 &&
                    ids.back() < experts);
        const double close = score == Score::kSoftmaxAfterTopK ? d + 4.0 * kF32Roundoff : relative;
        ASSERT_GE(margin(choice, ids), -2.0 * close) << experts << " experts, row " << row;
        for (const int32_t id : ids) total += p[size_t(id)];
        const bool divides = spec.normalize || score == Score::kSoftmaxAfterTopK;
        for (size_t i = 0; i < ids.size(); ++i) {
          const double want = p[size_t(ids[i])] / (divides ? total : 1.0) * double{spec.scale};
          ASSERT_NEAR(got.weights[size_t(row * spec.top_k) + i], want, 2.0 * relative * want);
        }
      }
    }
  }
}

TEST_P(RouteParity, WhatIsNoNumberStaysInRangeAndInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const Score score : {Score::kSoftmax, Score::kSigmoid, Score::kSoftmaxAfterTopK}) {
    for (const int32_t groups : {1, 2}) {
      const RouterSpec spec{
          .score = score, .num_experts = 6, .top_k = 3, .num_groups = groups, .top_groups = groups};
      const std::vector<float> fine = {3, 1, 2, 0, 5, 4};
      const Routed alone = run_logits(*backend_, spec, fine);
      for (const float bad : {nan, inf, -inf}) {
        std::vector<float> rows = fine;
        rows.insert(rows.end(), 6, bad);
        rows.insert(rows.end(), fine.begin(), fine.end());
        const Routed got = run_logits(*backend_, spec, rows);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(got.ids[i], alone.ids[i]);
          EXPECT_EQ(got.ids[i + 6], alone.ids[i]);
          EXPECT_EQ(got.weights[i + 6], alone.weights[i]);
          EXPECT_TRUE(got.ids[i + 3] >= 0 && got.ids[i + 3] < 6);
        }
        EXPECT_TRUE(got.ids[3] < got.ids[4] && got.ids[4] < got.ids[5]);
        if (std::isnan(bad)) {
          EXPECT_TRUE(std::isnan(got.weights[3]));
        }
      }
    }
  }
}

TEST_P(RouteParity, RowsDoNotDependOnTheirCompany) {
  Random random(92);
  SCOPED_TRACE(random.trace());
  const RouterSpec spec{.num_experts = 40, .top_k = 5};
  const std::vector<float> gate = random.uniforms(40 * 65), x = random.uniforms(70 * 65);
  const Routed all = run_route(*backend_, spec, gate, x);
  for (const int64_t row : {0, 1, 33, 69}) {
    const Routed one =
        run_route(*backend_, spec, gate, {x.begin() + row * 65, x.begin() + (row + 1) * 65});
    EXPECT_TRUE(std::equal(one.ids.begin(), one.ids.end(), all.ids.begin() + row * 5));
    EXPECT_TRUE(std::equal(one.weights.begin(), one.weights.end(), all.weights.begin() + row * 5));
  }
}

TEST_P(RouteParity, ContractsAreChecked) {
  const std::vector<float> logits(4, 0.0f);
  const RouterSpec good{.num_experts = 4, .top_k = 2};
  EXPECT_NO_THROW(run_logits(*backend_, good, logits));
  const auto refuse = [&](const auto& change) {
    RouterSpec bad = good;
    change(bad);
    EXPECT_THROW(run_logits(*backend_, bad, logits), InternalError);
  };
  refuse([](RouterSpec& s) { s.top_k = 5; });
  refuse([](RouterSpec& s) { s.top_k = 0; });
  refuse([](RouterSpec& s) { s.num_groups = 3; });
  refuse([](RouterSpec& s) { s.top_groups = 2; });
  refuse([](RouterSpec& s) { s.num_groups = 4, s.top_groups = 1; });  // one expert for two
  refuse([](RouterSpec& s) { s.norm_eps = -1.0f; });
  refuse([](RouterSpec& s) { s.scale = std::numeric_limits<float>::infinity(); });
}

INSTANTIATE_TEST_SUITE_P(Isas, RouteParity,
                         testing::Values("baseline", "avx2", "avx512", "avx512_bf16", "reference"),
                         isa_name);

TEST(Route, ReservedMemoryIsEnough) {
  const auto backend = make_cpu_backend({.num_threads = 2});
  Random random(93);
  const RouterSpec spec{.num_experts = 96, .top_k = 4};
  const std::vector<float> gate = random.uniforms(96 * 64);
  const auto weight =
      backend->pack_weight({{{gate.data(), DType::kF32, 96, 64, false, 64}}, DType::kF32});
  constexpr int64_t kRows = 200;
  const Matrix x(*backend, kRows, 64, random.uniforms(kRows * 64)), out(*backend, kRows, 4);
  const Backend::Buffer ids = backend->allocate(size_t(kRows) * 4 * sizeof(int32_t));
  const auto run = [&](int64_t rows) {
    backend->route(x.view().first_rows(rows), *weight, {}, {}, spec,
                   TensorView(ids.data, DType::kI32, {rows, 4}), out.view().first_rows(rows));
  };
  const size_t before = backend->bytes_in_use();
  backend->reserve([&] { run(kRows); });
  const size_t reserved = backend->bytes_in_use();
  EXPECT_GT(reserved, before);
  for (const int64_t rows : {1, 17, 200}) run(rows);
  EXPECT_EQ(backend->bytes_in_use(), reserved);
}

}  // namespace
}  // namespace headrace::parity
