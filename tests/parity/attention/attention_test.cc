#include <gtest/gtest.h>

#include <limits>

#include "base/check.h"
#include "every_case.h"
#include "parity/attention/attention_cases.h"

namespace headrace::test {
namespace {

class AttentionParity : public testing::TestWithParam<std::tuple<DType, int32_t>> {};

TEST_P(AttentionParity, MatchesTheReferenceOnEveryIsa) {
  const auto [dtype, head_dim] = GetParam();
  const std::pair<int32_t, int32_t> heads[] = {{1, 1}, {4, 4}, {6, 2}, {7, 1}, {16, 2}, {40, 1}};
  const int32_t blocks[] = {16, 32, 64, 128};
  const int32_t windows[] = {0, 1, 40, 600, 0, 64};
  const auto reference = backend_of("reference");
  const auto turn = static_cast<size_t>(dtype) + static_cast<size_t>(head_dim) / 16;
  for (size_t i = 0; i < std::size(heads); ++i) {
    if (!every_case() && (i + turn) % 2 == 0) continue;
    AttentionShape shape;
    std::tie(shape.num_heads, shape.num_kv_heads) = heads[i];
    shape.head_dim = head_dim;
    shape.dtype = dtype;
    // Each head count meets another block size and window for every head_dim.
    shape.block_size = blocks[(i + static_cast<size_t>(head_dim) / 16) % std::size(blocks)];
    const size_t mask = (i + static_cast<size_t>(head_dim) / 16) % std::size(windows);
    shape.window = windows[mask];
    shape.causal = mask % 3 != 0;  // both ways: without a window, and with one of 600
    const auto seed = static_cast<uint32_t>(1000 * head_dim) + static_cast<uint32_t>(i);
    const std::vector<float> expected = run_mixed_step(*reference, shape, seed);
    for (const std::string& isa : kernel_isas()) {
      expect_close(run_mixed_step(*backend_of(isa), shape, seed), expected,
                   tolerance(shape, 1101, isa), describe(shape, isa) + str_cat(" seed ", seed));
    }
  }
}

/// Few meet every remainder of a vector's width.
std::vector<int32_t> head_dims() {
  if (!every_case()) return {16, 80, 128};
  return {16, 48, 64, 80, 96, 128, 256};
}

INSTANTIATE_TEST_SUITE_P(All, AttentionParity,
                         testing::Combine(testing::ValuesIn(kDtypes),
                                          testing::ValuesIn(head_dims())),
                         [](const auto& instance) {
                           return str_cat(dtype_name(std::get<0>(instance.param)), "_",
                                          std::get<1>(instance.param));
                         });

// A window of 40 keys to each side, in a text of 700: those that a row sees lie in one tile or in
// three, and behind the last row's window there are others.
TEST(Attention, WindowsLookBothWays) {
  const auto reference = backend_of("reference");
  for (const DType dtype : kDtypes) {
    AttentionShape shape{6, 2, 48, 32, 40, dtype};
    shape.causal = false;
    const auto run = [&](Backend& backend) {
      AttentionHarness harness(backend, shape, 2, 1200, 5);
      return harness.step({{0, 700}, {1, 19}});
    };
    const std::vector<float> expected = run(*reference);
    for (const std::string& isa : kernel_isas()) {
      for (const int32_t threads : {1, 3}) {
        expect_close(run(*backend_of(isa, threads)), expected, tolerance(shape, 79, isa),
                     describe(shape, isa));
      }
      const auto one = backend_of(isa, 1), three = backend_of(isa, 3);
      EXPECT_TRUE(run(*one) == run(*three)) << describe(shape, isa);
    }
  }
}

/// A chunk of text and pictures, shorter and longer than a window of 40, from the middle of a text;
/// a picture that begins a text; a decode; each of the first one's rows, with keys behind it.
std::vector<Slice> picture_slices() {
  return {{0, 300, {{90, 100}, {110, 150}, {160, 390}}}, {1, 40, {{0, 33}}}, {2, 1}};
}

TEST(Attention, PicturesSeeThemselves) {
  const auto reference = backend_of("reference");
  for (const DType dtype : kDtypes) {
    for (const int32_t window : {0, 40}) {
      const AttentionShape shape{6, 2, 48, 32, window, dtype};
      const auto run = [&](Backend& backend) {
        AttentionHarness harness(backend, shape, 3, 800, 5);
        harness.step({{0, 100}, {2, 700}}, /*attend=*/false);
        return harness.step(picture_slices());
      };
      const std::vector<float> expected = run(*reference);
      for (const std::string& isa : kernel_isas()) {
        const auto one = backend_of(isa, 1), three = backend_of(isa, 3);
        const std::vector<float> out = run(*one);
        expect_close(out, expected, tolerance(shape, 701, isa), describe(shape, isa));
        EXPECT_TRUE(out == run(*three)) << describe(shape, isa);
      }
    }
  }
}

TEST(Attention, EveryBlockSizeMeetsEveryWindow) {
  const auto reference = backend_of("reference");
  AttentionShape shape{6, 2, 48, 16, 0, DType::kBF16};
  size_t turn = 0, pair = 0;
  for (shape.window = 0; shape.window <= 700; shape.window = shape.window * 3 + 5) {
    shape.dtype = kDtypes[turn++ % std::size(kDtypes)];
    shape.block_size = 16;
    const std::vector<float> expected = run_mixed_step(*reference, shape, 5);
    for (; shape.block_size <= 256; shape.block_size += shape.block_size < 64 ? 16 : 64, ++pair) {
      const std::vector<std::string> isas = kernel_isas();
      for (size_t i = 0; i < isas.size(); ++i) {
        if (!every_case() && i != pair % isas.size()) continue;
        expect_close(run_mixed_step(*backend_of(isas[i]), shape, 5), expected,
                     tolerance(shape, 1101, isas[i]), describe(shape, isas[i]));
      }
    }
  }
}

// Scores of some hundreds: almost all probabilities underflow, none may become NaN.
TEST(Attention, SurvivesLargeScores) {
  const auto reference = backend_of("reference");
  AttentionShape shape{4, 2, 64, 64, 0, DType::kF32, 12.0f};
  const std::vector<float> expected = run_mixed_step(*reference, shape, 3);
  for (const std::string& isa : kernel_isas()) {
    expect_close(run_mixed_step(*backend_of(isa), shape, 3), expected, tolerance(shape, 1101, isa),
                 describe(shape, isa));
  }
}

// --- the same bits ----------------------------------------------------------------------------

class AttentionBits : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int32_t kTokens = 600;

  static std::vector<float> run(const AttentionShape& shape, int32_t chunk, int32_t threads) {
    const auto backend = backend_of(GetParam(), threads);
    AttentionHarness harness(*backend, shape, 3, 1400, 11);
    return harness.run_alone(0, kTokens, chunk);
  }

  /// Sequence 0 in slices of changing length beside two others.
  static std::vector<float> run_in_company(const AttentionShape& shape, int32_t threads) {
    const auto backend = backend_of(GetParam(), threads);
    AttentionHarness harness(*backend, shape, 3, 1400, 11);
    harness.step({{2, 700}}, /*attend=*/false);
    std::vector<float> all;
    for (int32_t done = 0, chunk = 1; done < kTokens; done += chunk, chunk = chunk % 90 + 13) {
      chunk = std::min(chunk, kTokens - done);
      const std::vector<Slice> slices = {{1, 5 + chunk % 3}, {0, chunk}, {2, 1}};
      const std::vector<float> out = harness.step(slices);
      const auto width = static_cast<std::ptrdiff_t>(shape.num_heads) * shape.head_dim;
      const auto first = out.begin() + slices[0].rows * width;
      all.insert(all.end(), first, first + chunk * width);
    }
    return all;
  }
};

TEST_P(AttentionBits, DependOnTheSequenceAlone) {
  size_t turn = 0;
  for (const DType dtype : kDtypes) {
    for (const int32_t window : {0, 100}) {
      // Each dtype's other window is that of its neighbour.
      if (!every_case() && turn++ / 2 % 2 != (window == 0 ? 0u : 1u)) continue;
      AttentionShape shape{7, 1, 80, 64, window, dtype};
      const std::vector<float> expected = run(shape, kTokens, 1);
      const std::string what = describe(shape, GetParam());
      // A chunk of 1 is a decode: the same bits as the prefill of that position.
      for (const int32_t chunk : {1, 7, 64}) {
        EXPECT_TRUE(run(shape, chunk, 2) == expected) << what << " chunk " << chunk;
      }
      EXPECT_TRUE(run(shape, kTokens, 2) == expected) << what << " 2 threads";
      EXPECT_TRUE(run(shape, 64, 3) == expected) << what << " 3 threads";
      EXPECT_TRUE(run_in_company(shape, 2) == expected) << what << " in company";
      EXPECT_TRUE(run_in_company(shape, 3) == expected) << what << " in company, 3 threads";
      for (const int32_t block_size : {16, 48, 128, 256}) {
        shape.block_size = block_size;
        EXPECT_TRUE(run(shape, 64, 2) == expected) << what << " block " << block_size;
      }
    }
  }
}

// Two rows with one query see the same keys, whoever computes them and beside whom.
TEST_P(AttentionBits, BidirectionalRowsSeeTheWholeSequence) {
  for (const DType dtype : kDtypes) {
    AttentionShape shape{6, 2, 48, 32, 0, dtype};
    shape.causal = false;
    const auto width = static_cast<std::ptrdiff_t>(shape.num_heads) * shape.head_dim;
    const int32_t history = 40, rows = 700;
    std::vector<float> expected;
    for (const int32_t threads : {1, 2, 3}) {
      const auto backend = backend_of(GetParam(), threads);
      AttentionHarness harness(*backend, shape, 2, 1200, 3);
      std::vector<float> last = harness.row_of(0, history + rows - 1);
      const std::vector<float> first = harness.row_of(0, history);
      std::copy_n(first.begin(), width, last.begin());
      harness.set_row(0, history + rows - 1, last);
      harness.step({{0, history}, {1, 10 * threads}}, /*attend=*/false);
      std::vector<float> out = harness.step({{1, threads}, {0, rows}});
      out.erase(out.begin(), out.begin() + threads * width);
      if (expected.empty()) expected = out;
      const std::string what = describe(shape, GetParam()) + str_cat(" threads ", threads);
      EXPECT_TRUE(out == expected) << what;
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + width, out.end() - width)) << what;
      EXPECT_FALSE(std::equal(out.begin(), out.begin() + width, out.begin() + width)) << what;
    }
  }
}

// A picture's row has the same bits beside its others and alone, whose keys are there already; and
// so have the rows of the text around it in other chunks. The picture's values reach its first row.
TEST_P(AttentionBits, PicturesSeeThemselves) {
  for (const DType dtype : kDtypes) {
    for (const int32_t window : {0, 40}) {
      const AttentionShape shape{6, 2, 48, 32, window, dtype};
      const auto width = static_cast<std::ptrdiff_t>(shape.num_heads) * shape.head_dim;
      const std::vector<PositionRange> pictures = {{20, 120}, {130, 150}};
      const auto backend = backend_of(GetParam(), 2);
      AttentionHarness harness(*backend, shape, 2, 400, 3);
      const std::vector<float> whole = harness.step({{0, 300, pictures}});
      const auto row = [&](int32_t position) { return whole.begin() + position * width; };
      const std::string what = describe(shape, GetParam());
      for (const int32_t position : {20, 63, 119, 130, 149}) {
        harness.go_back(0, position);
        const std::vector<float> alone = harness.step({{0, 1, pictures}, {1, 1}});
        EXPECT_TRUE(std::equal(row(position), row(position) + width, alone.begin())) << what;
      }
      harness.go_back(0, 60);  // a hit may end within a picture
      const std::vector<float> rest = harness.step({{1, 3}, {0, 90, pictures}});
      EXPECT_TRUE(std::equal(row(60), row(150), rest.begin() + 3 * width)) << what;
      AttentionHarness causal(*backend, shape, 2, 400, 3);
      const std::vector<float> plain = causal.step({{0, 300}});
      EXPECT_TRUE(std::equal(row(0), row(20), plain.begin())) << what;
      EXPECT_FALSE(std::equal(row(20), row(21), plain.begin() + 20 * width)) << what;
      EXPECT_TRUE(std::equal(row(150), whole.cend(), plain.begin() + 150 * width)) << what;
    }
  }
}

// A long decode's splits are tasks of their own when there are threads to share them.
TEST_P(AttentionBits, LongDecodesSplitOverThreads) {
  for (const int32_t window : {0, 1500}) {
    AttentionShape shape{4, 1, 64, 32, window, DType::kBF16};
    std::vector<std::vector<float>> outs;
    for (const int32_t threads : {1, 2, 3}) {
      const auto backend = backend_of(GetParam(), threads);
      AttentionHarness harness(*backend, shape, 1, 3000, 2);
      harness.step({{0, 2900}}, /*attend=*/false);
      outs.push_back(harness.step({{0, 3}}));
    }
    EXPECT_TRUE(outs[0] == outs[1] && outs[1] == outs[2]) << describe(shape, GetParam());
  }
}

// One thread takes all KV heads of a decode together, two as well and split by split, three each
// head alone; a chunk of two rows takes each head alone, too.
TEST_P(AttentionBits, KvHeadsTogetherOrAlone) {
  const int32_t history = 4200, width = 21 * 48;
  for (const DType dtype : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    const AttentionShape shape{21, 3, 48, 64, 0, dtype};
    std::vector<std::vector<float>> outs;
    for (const int32_t threads : {1, 2, 3, 1}) {
      const auto backend = backend_of(GetParam(), threads);
      AttentionHarness harness(*backend, shape, 1, history + 10, 2);
      harness.step({{0, history}}, /*attend=*/false);
      outs.push_back(harness.step({{0, outs.size() < 3 ? 1 : 2}}));
      outs.back().resize(width);
    }
    for (size_t i = 1; i < outs.size(); ++i) {
      EXPECT_TRUE(outs[i] == outs[0]) << describe(shape, GetParam()) << " run " << i;
    }
  }
}

// A key or value of infinity or NaN reaches the rows that see it and no others, not even those
// that share its tile.
TEST_P(AttentionBits, LaterTokensNeverReachEarlierRows) {
  const auto backend = backend_of(GetParam());
  for (const float poison :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const AttentionShape shape{3, 1, 32, 16, 20, DType::kF32};
    AttentionHarness clean(*backend, shape, 1, 100, 4), bad(*backend, shape, 1, 100, 4);
    std::vector<float> row = clean.row_of(0, 50);
    std::fill(row.begin() + 3 * 32, row.end(), poison);
    bad.set_row(0, 50, row);
    const std::vector<float> expected = clean.step({{0, 100}}), out = bad.step({{0, 100}});
    const size_t width = 3 * 32;
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t position = i / width;
      if (position >= 50 && position < 70) {
        ASSERT_FALSE(std::isfinite(out[i]) && poison != poison) << "position " << position;
      } else {
        ASSERT_EQ(out[i], expected[i]) << "position " << position;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionBits, testing::ValuesIn(kernel_isas()),
                         [](const auto& instance) { return instance.param; });

TEST(Attention, RefusesWhatBreaksItsContract) {
  const auto backend = backend_of("");
  AttentionShape shape;
  AttentionHarness harness(*backend, shape, 1, 64, 1);
  EXPECT_THROW(harness.step({{0, 300}}), InternalError) << "more tokens than blocks";
  const CacheLayout odd = CacheLayout::uniform(1, kv_rows(1, 24, DType::kF32), 64);
  EXPECT_THROW(backend->make_kv_cache(odd, 1), InternalError);
}

}  // namespace
}  // namespace headrace::test
