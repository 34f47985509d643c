#include <gtest/gtest.h>

#include <cmath>

#include "parity/attention/attention_cases.h"

// Soft caps, sinks and large heads.

namespace headrace::test {
namespace {

/// Scores are a third or so: some stay as they are, others come near the cap.
constexpr float kCap = 0.5f;

TEST(AttentionScores, MatchTheReferenceOnEveryIsa) {
  const auto reference = backend_of("reference");
  struct Case {
    int32_t heads, kv_heads, head_dim, block_size, window;
    float cap;
    bool sinks;
  };
  const Case cases[] = {{6, 2, 48, 32, 0, kCap, false},  {6, 2, 48, 16, 40, 0.0f, true},
                        {3, 1, 16, 64, 600, kCap, true}, {2, 1, 272, 16, 70, 0.0f, false},
                        {3, 1, 512, 32, 0, kCap, true},  {40, 1, 16, 128, 1, kCap, true}};
  size_t turn = 0;
  for (const Case& c : cases) {
    for (const DType dtype : kDtypes) {
      // Each dtype meets large heads and every feature; every other pair of it.
      if (turn++ % 2 != 0 && c.head_dim < 512) continue;
      AttentionShape shape{c.heads, c.kv_heads, c.head_dim, c.block_size, c.window, dtype};
      shape.soft_cap = c.cap;
      shape.sinks = c.sinks;
      const std::vector<float> expected = run_mixed_step(*reference, shape, 21);
      for (const std::string& isa : kernel_isas()) {
        expect_close(run_mixed_step(*backend_of(isa), shape, 21), expected,
                     tolerance(shape, 1101, isa), describe(shape, isa));
      }
    }
    ++turn;  // or each dtype would always meet the same kind
  }
}

/// One row over `keys` that are all alike: a head's scores are `score`, and all values are 1.
std::vector<float> attend_alike(Backend& backend, float score, float cap,
                                std::vector<float> sinks) {
  constexpr int32_t kDim = 16, kKeys = 2;
  const CacheLayout layout = CacheLayout::uniform(1, kv_rows(1, kDim, DType::kF32), 16);
  const auto cache = backend.make_kv_cache(layout, 1);
  const std::vector<int32_t> table = {0}, positions = {0, 1}, zeros(kKeys, 0);
  const auto heads = static_cast<int32_t>(sinks.size());
  const std::vector<SeqSlice> seqs = {{0, kKeys, 0, table}};
  StepBatch batch{zeros, positions, positions, seqs, {}};
  batch.cache = cache.get();
  backend.begin_step(batch);
  const int64_t width = int64_t{heads + 2} * kDim;
  std::vector<float> qkv(static_cast<size_t>(kKeys * width), 1.0f);
  std::vector<float> out(static_cast<size_t>(kKeys * heads * kDim));
  const TensorView x(qkv.data(), DType::kF32, {kKeys, width});
  backend.rope_kv_write(x, {heads, 1, kDim}, {}, {}, *cache, 0);
  AttentionSpec spec{heads, 1, kDim, score / kDim};
  spec.soft_cap = cap;
  spec.sinks = TensorView(sinks.data(), DType::kF32, {heads});
  backend.attention(x.columns(0, int64_t{heads} * kDim), spec, *cache, 0,
                    TensorView(out.data(), DType::kF32, {kKeys, int64_t{heads} * kDim}));
  std::vector<float> last;
  for (int32_t h = 0; h < heads; ++h) last.push_back(out[static_cast<size_t>((heads + h) * kDim)]);
  return last;
}

// Known numbers, on the reference too.
TEST(AttentionScores, AreThoseOfTheFormulas) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const std::string& isa : available_cpu_isas()) {
    const auto backend = backend_of(isa);
    // Two scores of 0 and a sink of 0 weigh a third each.
    const std::vector<float> plain = attend_alike(*backend, 0.0f, 0.0f, {0.0f, kNever, 200.0f});
    EXPECT_NEAR(plain[0], 2.0 / 3, 2e-7) << isa;
    EXPECT_NEAR(plain[1], 1.0, 2e-7) << isa;
    EXPECT_NEAR(plain[2], 0.0, 1e-30) << isa;
    // 30 tanh(60 / 30) = 28.9208; the sink isn't capped.
    const double capped = 30.0 * std::tanh(2.0), sink = 28.0;
    const double both = 2.0 * std::exp(capped - sink);
    const std::vector<float> out = attend_alike(*backend, 60.0f, 30.0f, {28.0f});
    EXPECT_NEAR(out[0], both / (both + 1.0), 30.0 * 16 * 0x1p-24) << isa;
  }
}

class ScoreBits : public testing::TestWithParam<std::string> {};

// In chunks, beside others, whatever the block size and the threads: the same bits. A chunk's first
// rows see a split that its last ones don't.
TEST_P(ScoreBits, DependOnTheSequenceAlone) {
  constexpr int32_t kTokens = 570;
  for (const DType dtype : kDtypes) {
    AttentionShape shape{7, 1, 48, 64, 0, dtype};
    shape.soft_cap = kCap;
    shape.sinks = true;
    for (const int32_t window : {0, 50}) {
      shape.window = window;
      const auto run = [&](int32_t chunk, int32_t threads, int32_t block_size) {
        shape.block_size = block_size;
        const auto backend = backend_of(GetParam(), threads);
        AttentionHarness harness(*backend, shape, 2, 600, 11);
        std::vector<float> out = harness.step({{0, 500}});
        for (int32_t done = 500, rows; done < kTokens; done += rows) {
          rows = std::min(chunk, kTokens - done);
          const std::vector<float> more = harness.step({{0, rows}, {1, 2}});
          out.insert(out.end(), more.begin(), more.end() - 2 * 7 * 48);
        }
        return out;
      };
      const std::vector<float> expected = run(kTokens, 1, 64);
      EXPECT_TRUE(run(1, 2, 64) == expected) << describe(shape, GetParam()) << " one by one";
      EXPECT_TRUE(run(33, 3, 16) == expected) << describe(shape, GetParam()) << " in chunks";
    }
  }
}

// Splits that are tasks of their own, and KV heads that are a task together.
TEST_P(ScoreBits, SplitsAndJoinedHeadsAreTheSame) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    AttentionShape shape{9, 3, 48, 64, 0, dtype};
    shape.soft_cap = kCap;
    shape.sinks = true;
    std::vector<std::vector<float>> outs;
    for (const int32_t threads : {1, 2, 3, 1}) {
      const auto backend = backend_of(GetParam(), threads);
      AttentionHarness harness(*backend, shape, 1, 2200, 2);
      harness.step({{0, 2150}}, /*attend=*/false);
      outs.push_back(harness.step({{0, outs.size() < 3 ? 1 : 2}}));
      outs.back().resize(9 * 48);
    }
    for (size_t i = 1; i < outs.size(); ++i) {
      EXPECT_TRUE(outs[i] == outs[0]) << describe(shape, GetParam()) << " run " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ScoreBits, testing::ValuesIn(kernel_isas()),
                         [](const auto& instance) { return instance.param; });

TEST(AttentionScores, RefuseWhatIsNoCap) {
  const auto backend = backend_of("");
  for (const float cap :
       {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(attend_alike(*backend, 1.0f, cap, {0.0f}), InternalError) << cap;
  }
}

}  // namespace
}  // namespace headrace::test
