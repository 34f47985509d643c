#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/contract/philox.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/reference/reference_sample.h"
#include "base/check.h"
#include "parity/sample/sample_harness.h"

namespace headrace::test {
namespace {

std::vector<std::string> kernel_isas() {
  std::vector<std::string> isas = available_cpu_isas();
  std::erase(isas, "reference");
  return isas;
}

std::unique_ptr<Backend> backend_of(const std::string& isa, int32_t threads = 2) {
  CpuBackendOptions options;
  options.isa = isa;
  options.num_threads = threads;
  return make_cpu_backend(options);
}

std::vector<SampleResult> sample(Backend& backend, std::vector<float> logits, int64_t logits_rows,
                                 int32_t vocab_size, const std::vector<SampleRow>& rows) {
  std::vector<SampleResult> results(rows.size());
  const auto width = static_cast<int64_t>(logits.size()) / logits_rows;
  backend.sample(TensorView(logits.data(), DType::kF32, {logits_rows, width}), vocab_size, rows,
                 results);
  return results;
}

std::vector<SampleResult> reference(std::vector<float> logits, int64_t logits_rows,
                                    int32_t vocab_size, const std::vector<SampleRow>& rows) {
  std::vector<SampleResult> results(rows.size());
  const auto width = static_cast<int64_t>(logits.size()) / logits_rows;
  reference_sample(TensorView(logits.data(), DType::kF32, {logits_rows, width}), vocab_size, rows,
                   results);
  return results;
}

bool same_bits(const SampleResult& a, const SampleResult& b) {
  const auto same_top = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return a.finite == b.finite && a.token == b.token && a.logprob == b.logprob && a.rank == b.rank &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same_top);
}

class SampleParity : public testing::TestWithParam<std::string> {};

TEST_P(SampleParity, AgreesWithTheReference) {
  const auto backend = backend_of(GetParam());
  int close_calls = 0;
  for (const int32_t vocab_size : {1, 3, 37, 300, 5000, 20011, 152064}) {
    const int cases = vocab_size < 1000 ? 600 : vocab_size < 10000 ? 200 : 400000 / vocab_size;
    for (int i = 0; i < cases; ++i) {
      const uint32_t seed = static_cast<uint32_t>(vocab_size * 1000 + i);
      const int32_t padded = vocab_size + i % 5;
      const RandomCase c(vocab_size, padded, seed);
      const SampleResult out = sample(*backend, c.logits, 1, vocab_size, {c.row})[0];
      const SampleResult expected = reference(c.logits, 1, vocab_size, {c.row})[0];
      const std::string what = str_cat("vocabulary ", vocab_size, " seed ", seed);
      EXPECT_EQ(out.finite, expected.finite) << what;
      if (out.token != expected.token) {
        ASSERT_TRUE(is_close_call(c, vocab_size, out.token, expected.token)) << what;
        ++close_calls;
        continue;
      }
      expect_logprob(out.logprob, expected.logprob, what);
      EXPECT_EQ(out.rank, expected.rank) << what;
      ASSERT_EQ(out.top.size(), expected.top.size()) << what;
      for (size_t t = 0; t < out.top.size(); ++t) {
        ASSERT_EQ(out.top[t].token, expected.top[t].token) << what << " place " << t;
        expect_logprob(out.top[t].logprob, expected.top[t].logprob, what);
      }
    }
  }
  EXPECT_LE(close_calls, 2);
}

TEST_P(SampleParity, BitsDependOnTheRowAlone) {
  constexpr int32_t kVocab = 50021, kRows = 7;
  std::vector<RandomCase> cases;
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  cases.reserve(kRows);  // rows point into their cases
  for (int32_t i = 0; i < kRows; ++i) cases.emplace_back(kVocab, kVocab, 100 + i);
  for (int32_t i = 0; i < kRows; ++i) {
    logits.insert(logits.end(), cases[static_cast<size_t>(i)].logits.begin(),
                  cases[static_cast<size_t>(i)].logits.end());
    rows.push_back(cases[static_cast<size_t>(i)].row);
    rows.back().logits_row = i;
  }
  const auto single = backend_of(GetParam(), 1);
  const std::vector<SampleResult> expected = sample(*single, logits, kRows, kVocab, rows);
  for (const int32_t threads : {2, 3, 16}) {
    const auto backend = backend_of(GetParam(), threads);
    const std::vector<SampleResult> together = sample(*backend, logits, kRows, kVocab, rows);
    std::vector<SampleRow> reversed(rows.rbegin(), rows.rend());
    const std::vector<SampleResult> turned = sample(*backend, logits, kRows, kVocab, reversed);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(same_bits(together[i], expected[i])) << threads << " threads, row " << i;
      EXPECT_TRUE(same_bits(turned[rows.size() - 1 - i], expected[i])) << "reversed, row " << i;
      const SampleResult alone = sample(*backend, logits, kRows, kVocab, {rows[i]})[0];
      EXPECT_TRUE(same_bits(alone, expected[i])) << threads << " threads, alone, row " << i;
    }
  }
}

TEST_P(SampleParity, SaysWhichRowsAreNotFinite) {
  const auto backend = backend_of(GetParam());
  for (const int32_t vocab_size : {1, 5, 37, 20011}) {
    const int32_t padded = vocab_size + 3;
    const auto is_finite = [&](const std::vector<float>& logits, const SampleRow& row) {
      const bool found = sample(*backend, logits, 1, vocab_size, {row})[0].finite;
      EXPECT_EQ(reference(logits, 1, vocab_size, {row})[0].finite, found);
      return found;
    };
    std::vector<float> plain(static_cast<size_t>(padded), 0.25f);
    for (int32_t t = vocab_size; t < padded; ++t) plain[static_cast<size_t>(t)] = kNan;
    const std::vector<uint32_t> none(static_cast<size_t>(vocab_size / 32 + 1), 0);
    SampleRow guided, forced, greedy;
    guided.allowed = none.data();
    forced.forced_token = 0;
    greedy.greedy = true;
    for (const SampleRow& row : {SampleRow{}, greedy, guided, forced}) {
      EXPECT_TRUE(is_finite(plain, row)) << vocab_size << ": what is masked or padding is legal";
      for (const int32_t at : {0, vocab_size / 2, vocab_size - 1}) {
        for (const float bad : {kNan, -kNan, kInf}) {
          std::vector<float> logits = plain;
          logits[static_cast<size_t>(at)] = bad;
          EXPECT_FALSE(is_finite(logits, row)) << bad << " at " << at << " of " << vocab_size;
        }
        std::vector<float> logits(plain.size(), -kInf);
        EXPECT_FALSE(is_finite(logits, row)) << "nothing but -inf";
        logits[static_cast<size_t>(at)] = -3e38f;
        EXPECT_TRUE(is_finite(logits, row)) << "-inf beside one number";
      }
    }
  }
}

TEST_P(SampleParity, TiesGoToTheLowerId) {
  const auto backend = backend_of(GetParam());
  constexpr int32_t kVocab = 40000;
  std::vector<float> logits(kVocab, -1.0f);
  for (const size_t t : {9001u, 20000u, 39999u}) logits[t] = 2.5f;
  SampleRow greedy;
  greedy.greedy = true;
  greedy.num_logprobs = 5;
  const SampleResult result = sample(*backend, logits, 1, kVocab, {greedy})[0];
  EXPECT_EQ(result.token, 9001);
  EXPECT_EQ(result.rank, 1);
  const int32_t expected[] = {9001, 20000, 39999, 0, 1};
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(result.top[i].token, expected[i]);
  logits[5] = 0.0f;
  logits[6] = -0.0f;
  for (size_t t : {9001u, 20000u, 39999u}) logits[t] = -5.0f;
  EXPECT_EQ(sample(*backend, logits, 1, kVocab, {greedy})[0].token, 5);
  std::swap(logits[5], logits[6]);
  EXPECT_EQ(sample(*backend, logits, 1, kVocab, {greedy})[0].token, 5) << "-0 equals 0";
}

TEST_P(SampleParity, PenalizedLogprobsAreReadBeforeTemperature) {
  const auto backend = backend_of(GetParam());
  const std::vector<float> logits = {2.0f, 1.0f, 4.0f, 0.5f, 3.0f};
  const LogitBias bias[] = {{0, 1.0f}};
  const SeenToken seen[] = {{1, 2}, {4, 0}};
  const int32_t masked[] = {3}, banned[] = {2};
  SampleRow row;
  row.bias = bias;
  row.seen = seen;
  row.masked = masked;
  row.banned = banned;
  row.repetition_penalty = 2.0f;
  row.frequency_penalty = 0.25f;
  row.temperature = 0.5f;
  row.num_logprobs = 5;
  row.logprobs_mode = LogprobsMode::kPenalizedLogprobs;
  const double expected[] = {3.0, 0.0, 4.0, -static_cast<double>(kInf), 1.5};
  double total = 0;
  for (const double value : expected) total += std::exp(value);
  for (const bool greedy : {false, true}) {
    row.greedy = greedy;
    const SampleResult result = sample(*backend, logits, 1, 5, {row})[0];
    EXPECT_NE(result.token, 2) << "banned, though its log-probability is reported";
    ASSERT_EQ(result.top.size(), 5u);
    for (const TokenLogprob& top : result.top) {
      expect_logprob(top.logprob, static_cast<float>(expected[top.token] - std::log(total)),
                     str_cat("token ", top.token));
    }
    EXPECT_EQ(result.top[0].token, 2);
  }
}

// All logits equal: top_p keeps exactly the lower half of the ids, each as likely as the others.
TEST_P(SampleParity, TopPOfAFlatDistributionKeepsTheLowerIds) {
  const auto backend = backend_of(GetParam());
  constexpr int32_t kVocab = 152064;
  const std::vector<float> logits(kVocab, 0.25f);
  double mean = 0;
  for (uint64_t i = 0; i < 64; ++i) {
    SampleRow row;
    row.position = i;
    row.top_p = 0.5f;
    const int32_t token = sample(*backend, logits, 1, kVocab, {row})[0].token;
    const double u = static_cast<double>(philox_uniform(0, i));
    EXPECT_EQ(token, static_cast<int32_t>(u * (kVocab / 2)));
    mean += token / 64.0;
  }
  EXPECT_NEAR(mean, kVocab / 4, 4 * kVocab / 2 / std::sqrt(12.0 * 64));
}

TEST_P(SampleParity, NothingLeftFallsBackToTheSmallestAllowed) {
  const auto backend = backend_of(GetParam());
  const std::vector<float> nothing = {kNan, -kInf, -kInf, kNan, 7.0f};
  for (const bool greedy : {false, true}) {
    SampleRow row;
    row.greedy = greedy;
    row.num_logprobs = 2;
    const SampleResult result = sample(*backend, nothing, 1, 4, {row})[0];
    EXPECT_EQ(result.token, 0);
    EXPECT_EQ(result.logprob, -kInf);
    EXPECT_EQ(result.rank, 1);
    ASSERT_EQ(result.top.size(), 2u);
    const uint32_t allowed = 0b1100;
    row.allowed = &allowed;
    EXPECT_EQ(sample(*backend, nothing, 1, 4, {row})[0].token, 2);
    const uint32_t none = 0;
    row.allowed = &none;
    EXPECT_EQ(sample(*backend, nothing, 1, 4, {row})[0].token, 0);
    const int32_t banned[] = {0, 1};
    SampleRow bans;
    bans.banned = banned;
    EXPECT_EQ(sample(*backend, {3.0f, 4.0f}, 1, 2, {bans})[0].token, 0);
  }
}

TEST_P(SampleParity, RefusesWhatBreaksItsContract) {
  const auto backend = backend_of(GetParam());
  SampleRow row;
  row.logits_row = 1;
  EXPECT_THROW(sample(*backend, {1.0f, 2.0f}, 1, 2, {row}), InternalError);
  row.logits_row = 0;
  row.forced_token = 2;
  EXPECT_THROW(sample(*backend, {1.0f, 2.0f}, 1, 2, {row}), InternalError);
  row.forced_token = -1;
  EXPECT_THROW(sample(*backend, {1.0f, 2.0f}, 1, 3, {row}), InternalError);
  row.temperature = 0.0f;
  EXPECT_THROW(sample(*backend, {1.0f, 2.0f}, 1, 2, {row}), InternalError);
}

// --- distributions ----------------------------------------------------------------------------

constexpr uint64_t kDraws = 60000;

/// How far the draws are from `p`, in standard deviations: Pearson's chi-square, tokens expected
/// fewer than 10 times taken together, by the Wilson-Hilferty approximation.
double deviation(const std::vector<int32_t>& tokens, const std::vector<double>& p) {
  std::vector<double> counts(p.size(), 0.0);
  for (const int32_t t : tokens) counts[static_cast<size_t>(t)] += 1.0;
  const auto n = static_cast<double>(tokens.size());
  double chi2 = 0, rare_count = 0, rare_expected = 0;
  int cells = 0;
  const auto add_cell = [&](double count, double expected) {
    chi2 += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t t = 0; t < p.size(); ++t) {
    if (p[t] == 0.0 && counts[t] > 0) return 1e9;
    if (p[t] * n >= 10) {
      add_cell(counts[t], p[t] * n);
    } else {
      rare_count += counts[t];
      rare_expected += p[t] * n;
    }
  }
  if (rare_expected >= 5) add_cell(rare_count, rare_expected);
  const double df = cells - 1.0;
  const double w = 2.0 / (9.0 * df);
  return (std::cbrt(chi2 / df) - (1.0 - w)) / std::sqrt(w);
}

/// Draws of one row at positions 0, 1, ...
std::vector<int32_t> draw_many(Backend& backend, const std::vector<float>& logits,
                               const SampleRow& row) {
  constexpr uint64_t kBatch = 1000;
  std::vector<int32_t> tokens;
  for (uint64_t first = 0; first < kDraws; first += kBatch) {
    std::vector<SampleRow> rows(kBatch, row);
    for (uint64_t i = 0; i < kBatch; ++i) rows[i].position = first + i;
    for (const SampleResult& result :
         sample(backend, logits, 1, static_cast<int32_t>(logits.size()), rows)) {
      tokens.push_back(result.token);
    }
  }
  return tokens;
}

struct Distribution {
  const char* name;
  float temperature, top_p, min_p;
  int32_t top_k;
  bool penalties;
};

constexpr Distribution kDistributions[] = {
    {"temperature_1", 1.0f, 1.0f, 0.0f, 0, false},
    {"temperature_0_6", 0.6f, 1.0f, 0.0f, 0, false},
    {"temperature_1_7", 1.7f, 1.0f, 0.0f, 0, false},
    {"top_k", 1.0f, 1.0f, 0.0f, 12, false},
    {"top_p", 1.0f, 0.8f, 0.0f, 0, false},
    {"min_p", 1.0f, 1.0f, 0.1f, 0, false},
    {"all_three", 1.3f, 0.9f, 0.02f, 30, false},
    {"penalties", 1.0f, 1.0f, 0.0f, 0, true},
    {"everything", 0.8f, 0.95f, 0.01f, 40, true},
};

class SampleDistribution : public testing::TestWithParam<std::tuple<std::string, Distribution>> {
 protected:
  static constexpr size_t kVocab = 80;

  SampleDistribution() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1.5f);
    for (float& x : logits_) x = normal(random);
    for (int32_t t = 0; t < 30; ++t) seen_.push_back({t, t % 3});
  }

  SampleRow row() const {
    const Distribution& d = std::get<1>(GetParam());
    SampleRow row;
    row.seed = 20240229;
    row.temperature = d.temperature;
    row.top_p = d.top_p;
    row.min_p = d.min_p;
    row.top_k = d.top_k;
    if (d.penalties) {
      row.repetition_penalty = 1.4f;
      row.frequency_penalty = 0.3f;
      row.presence_penalty = 0.5f;
      row.seen = seen_;
    }
    return row;
  }

  std::vector<float> logits_ = std::vector<float>(kVocab);
  std::vector<SeenToken> seen_;
};

// Seeds are fixed, so a pass stays a pass. 3.5 standard deviations: one right sampler in 4,000
// would fail; the wrong distribution (8 % off in temperature) has to stand out by 6.
TEST_P(SampleDistribution, DrawsFollowTheReference) {
  const auto backend = backend_of(std::get<0>(GetParam()));
  const std::vector<int32_t> tokens = draw_many(*backend, logits_, row());
  const std::vector<double> p = reference_distribution(logits_.data(), kVocab, row());
  EXPECT_LT(deviation(tokens, p), 3.5);
  SampleRow wrong = row();
  wrong.temperature *= 1.08f;
  EXPECT_GT(deviation(tokens, reference_distribution(logits_.data(), kVocab, wrong)), 6.0);
}

INSTANTIATE_TEST_SUITE_P(All, SampleDistribution,
                         testing::Combine(testing::ValuesIn(kernel_isas()),
                                          testing::ValuesIn(kDistributions)),
                         [](const auto& instance) {
                           return str_cat(std::get<0>(instance.param), "_",
                                          std::get<1>(instance.param).name);
                         });

INSTANTIATE_TEST_SUITE_P(EveryIsa, SampleParity, testing::ValuesIn(kernel_isas()),
                         [](const auto& instance) { return instance.param; });

// The draws of a vocabulary too flat for the first look at the likeliest tokens.
TEST(Sample, DrawsFromALargeFlatVocabulary) {
  const auto backend = backend_of("");
  constexpr size_t kVocab = 3000;
  std::vector<float> logits(kVocab);
  for (size_t t = 0; t < kVocab; ++t) logits[t] = t % 2 == 0 ? 0.0f : -0.7f;
  logits[17] = 14.0f;  // leaves the others out of the first look, yet they hold 1 part in 500
  SampleRow row;
  row.seed = 5;
  const std::vector<int32_t> tokens = draw_many(*backend, logits, row);
  std::vector<double> p = reference_distribution(logits.data(), kVocab, row);
  // Together, tokens of either kind are expected often enough to test.
  std::vector<double> kinds(3, 0.0);
  const auto kind = [](size_t t) { return t == 17 ? 2u : t % 2; };
  for (size_t t = 0; t < kVocab; ++t) kinds[kind(t)] += p[t];
  std::vector<int32_t> drawn;
  for (const int32_t t : tokens) {
    drawn.push_back(static_cast<int32_t>(kind(static_cast<size_t>(t))));
  }
  EXPECT_LT(deviation(drawn, kinds), 3.5);
}

}  // namespace
}  // namespace headrace::test
