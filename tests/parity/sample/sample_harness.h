#pragma once

// What the tests of sampling share: random rows, and how close a result must be to the reference's.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/contract/philox.h"
#include "backend/reference/reference_sample.h"

namespace headrace::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Logits and everything a row points to, made from one seed.
struct RandomCase {
  std::vector<float> logits;
  std::vector<uint32_t> allowed;
  std::vector<SeenToken> seen;
  std::vector<LogitBias> bias;
  std::vector<int32_t> masked, banned;
  SampleRow row;

  RandomCase(int32_t vocab_size, int32_t padded, uint32_t seed) : random_(seed) {
    const float spreads[] = {0.0f, 0.05f, 1.0f, 4.0f, 30.0f};
    std::normal_distribution<float> normal;
    const float spread = spreads[below(5)];
    const bool ties = chance(0.3);
    for (int32_t t = 0; t < padded; ++t) {
      const float x = spread * normal(random_) + 3.0f;
      logits.push_back(ties ? std::round(x) : x);
      if (chance(0.002)) logits.back() = chance(0.5) ? kNan : -kInf;
    }
    if (chance(0.05)) logits[static_cast<size_t>(below(vocab_size))] = kInf;
    // What lies beyond the vocabulary must never be drawn.
    for (int32_t t = vocab_size; t < padded; ++t) logits[static_cast<size_t>(t)] = 1000.0f;
    choose_edits(vocab_size);
    choose_parameters(vocab_size, seed);
  }

 private:
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1p-24f; }
  bool chance(double p) { return uniform() < static_cast<float>(p); }

  void choose_edits(int32_t vocab_size) {
    if (chance(0.3)) {
      for (int32_t w = 0; w < (vocab_size + 31) / 32; ++w) {
        allowed.push_back(chance(0.3) ? 0u : chance(0.5) ? 0xffffffffu : random_());
      }
      row.allowed = allowed.data();
    }
    // A few edits lie outside of the vocabulary.
    const auto token = [&] { return below(vocab_size + 3) - 1; };
    for (int i = below(6); i-- > 0;) bias.push_back({token(), 8.0f * uniform() - 4.0f});
    for (int i = below(4); i-- > 0;) masked.push_back(token());
    for (int i = below(4); i-- > 0;) banned.push_back(token());
    std::vector<int32_t> tokens;
    for (int i = below(20); i-- > 0;) tokens.push_back(token());
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (const int32_t t : tokens) seen.push_back({t, below(4)});
    row.seen = seen;
    row.bias = bias;
    row.masked = masked;
    row.banned = banned;
  }

  void choose_parameters(int32_t vocab_size, uint32_t seed) {
    row.greedy = chance(0.15);
    row.seed = seed;
    row.position = seed % 7;
    row.temperature = chance(0.3) ? 1.0f : 0.2f + 2.0f * uniform();
    row.top_k = chance(0.5) ? 0 : chance(0.2) ? below(2 * vocab_size) + 1 : below(60) + 1;
    row.top_p = chance(0.5) ? 1.0f : 0.01f + 0.98f * uniform();
    row.min_p = chance(0.6) ? 0.0f : 0.3f * uniform() * uniform();
    if (chance(0.1)) row.min_p = 1e-8f;
    row.repetition_penalty = chance(0.5) ? 1.0f : 0.5f + uniform();
    row.frequency_penalty = chance(0.5) ? 0.0f : uniform();
    row.presence_penalty = chance(0.5) ? 0.0f : 2.0f * uniform() - 1.0f;
    if (chance(0.1)) row.forced_token = below(vocab_size);
    if (chance(0.8)) row.num_logprobs = chance(0.1) ? vocab_size + 3 : below(25);
    row.logprobs_mode = static_cast<LogprobsMode>(below(5));
    row.temperature_scaled_logprobs = chance(0.3);
    row.top_p_normalized_logprobs = chance(0.3);
  }

  std::mt19937 random_;
};

/// May the draw go either way? Only if u falls within rounding of the edge between two tokens.
inline bool is_close_call(const RandomCase& c, int32_t vocab_size, int32_t token, int32_t other) {
  const std::vector<double> p = reference_distribution(c.logits.data(), vocab_size, c.row);
  std::vector<int32_t> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)];
  });
  const double u = static_cast<double>(philox_uniform(c.row.seed, c.row.position));
  double sum = 0;
  for (const int32_t t : order) {
    if (t == token || t == other) {
      const double edges[] = {sum, sum + p[static_cast<size_t>(t)]};
      return std::abs(edges[0] - u) < 2e-6 || std::abs(edges[1] - u) < 2e-6;
    }
    sum += p[static_cast<size_t>(t)];
  }
  return false;
}

// A log-probability is distance - log(sum). The distance is exact in double; the sum's terms are
// exp() of a float32 difference, of relative error |difference| 2^-24 + 2 ulp, where terms with a
// difference beyond 20 add nothing that shows: 24 * 2^-24. Rounding to float32 adds half an ulp.
inline void expect_logprob(float value, float expected, const std::string& what) {
  if (std::isinf(expected) || std::isinf(value)) {
    EXPECT_EQ(value, expected) << what;
  } else {
    EXPECT_NEAR(value, expected, 24 * 0x1p-24 + std::abs(expected) * 0x1p-23) << what;
  }
}

}  // namespace headrace::test
