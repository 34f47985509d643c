// The CUDA backend's ops against the reference, through Backend's own interface.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "base/check.h"
#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/uploaded.h"
#include "parity/sample/sample_harness.h"
#include "parity/vision/segment_contract.h"

namespace headrace {
namespace {

class CudaParity : public testing::TestWithParam<DType> {};

TEST_P(CudaParity, ASequencesBitsDependOnNothingElse) {
  DecoderHarness harness(make_gpu_under_test(GetParam()), llama_folder(),
                         {.storage = GetParam(), .kv_dtype = GetParam()});
  const std::vector<std::vector<int32_t>> prompts = {prompt(5, 1), prompt(40, 2), prompt(17, 3)};
  std::vector<Rows> alone;
  for (int32_t i = 0; i < 3; ++i) {
    alone.push_back(generate_alone(harness, i, prompts[static_cast<size_t>(i)], 12));
  }

  Rows last(3);
  for (int32_t i = 0; i < 3; ++i) {
    harness.start(i, static_cast<int32_t>(prompts[static_cast<size_t>(i)].size()));
    last[static_cast<size_t>(i)] = harness.step({{i, prompts[static_cast<size_t>(i)]}}).back();
  }
  for (size_t step = 1; step < 12; ++step) {
    std::vector<Chunk> chunks;
    for (int32_t i = 0; i < 3; ++i) {
      chunks.push_back({i, {argmax(last[static_cast<size_t>(i)])}});
    }
    last = harness.step(chunks);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(last[i], alone[i][step]) << "sequence " << i << ", step " << step;
    }
  }
}

// Prompts of 150 and 30 tokens: every kind of kernel for linears and attention.
TEST(CudaPlainKernels, GiveTheSameBits) {
  const std::string folder = load_golden_case("ernie4_5").folder;
  const auto answers = [&](bool plain) {
    DecoderHarness harness(make_gpu_under_test(DType::kBF16, plain), folder,
                           {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
    harness.start(0, 180);
    Rows out = harness.step({{0, prompt(150, 3)}});
    for (const auto& row : harness.step({{0, prompt(30, 5)}})) out.push_back(row);
    return out;
  };
  EXPECT_EQ(answers(true), answers(false));
}

/// Relative error of one rounding to `dtype`.
double rounding(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

std::vector<float> magnitudes(std::vector<float> values) {
  for (float& x : values) x = std::abs(x);
  return values;
}

struct LinearShape {
  int64_t rows, n, k;
};

/// x . W^T + bias on `backend`, activations of `dtype`, widened.
std::vector<float> run_linear(Backend& backend, DType dtype, DType out_dtype, DType storage,
                              const LinearShape& s, const std::vector<float>& x,
                              const std::vector<float>& w, const std::vector<float>& bias) {
  const WeightPart part{
      .data = w.data(), .dtype = DType::kF32, .n = s.n, .k = s.k, .row_stride = s.k};
  const auto weight = backend.pack_weight({.parts = {part}, .storage = storage});
  const Uploaded in(backend, dtype, s.rows, s.k, x), add(backend, dtype, 1, s.n, bias);
  const Uploaded out(backend, out_dtype, s.rows, s.n);
  backend.linear(in.view(), *weight, add.vector(), out.view());
  return out.read();
}

// Products of the inputs are exact in float32 (of two float32's: one rounding); k sums round once
// each, in whatever order; the result once more to its dtype.
TEST_P(CudaParity, Linear) {
  const DType dtype = GetParam();
  const auto gpu = make_gpu_under_test(dtype);
  const auto reference = make_reference_backend();
  uint32_t seed = 1;
  for (const LinearShape& s : {LinearShape{1, 64, 64},
                               {3, 100, 72},
                               {17, 257, 192},
                               {33, 130, 520},
                               {70, 96, 1040},
                               {140, 130, 136}}) {
    SCOPED_TRACE(str_cat(s.rows, " x ", s.n, " x ", s.k));
    const auto x = random_values(static_cast<size_t>(s.rows * s.k), ++seed, dtype);
    const auto w = random_values(static_cast<size_t>(s.n * s.k), ++seed, dtype);
    const auto bias = random_values(static_cast<size_t>(s.n), ++seed, dtype);
    const auto want = run_linear(*reference, DType::kF32, DType::kF32, dtype, s, x, w, bias);
    const auto sums = run_linear(*reference, DType::kF32, DType::kF32, dtype, s, magnitudes(x),
                                 magnitudes(w), magnitudes(bias));
    for (const DType out_dtype : {dtype, DType::kF32}) {
      const auto got = run_linear(*gpu, dtype, out_dtype, dtype, s, x, w, bias);
      for (size_t i = 0; i < got.size(); ++i) {
        const double most = static_cast<double>(s.k + 2) * 0x1p-24 * static_cast<double>(sums[i]) +
                            rounding(out_dtype) * std::abs(static_cast<double>(want[i]));
        ASSERT_NEAR(got[i], want[i], 1.01 * most) << i;
      }
    }
  }
}

// Every probability and every sum is off by few roundings of float32; with tensor cores the
// probabilities are rounded to the dtype, as queries, keys, values and results are.
TEST_P(CudaParity, AttentionOfEveryMaskCapAndSink) {
  const DType dtype = GetParam();
  constexpr int32_t kHeads = 4, kDim = 64, kRows = 70, kBlock = 16;
  constexpr int64_t kWidth = kHeads * kDim, kAll = kWidth + 2 * kDim;
  const auto qkv = random_values(static_cast<size_t>(kRows * kAll), 7, dtype);
  const std::vector<int32_t> blocks = {4, 0, 3, 1, 2};
  const std::vector<SeqSlice> seqs = {{0, kRows, 0, blocks}};
  std::vector<int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 0);
  const auto run = [&](Backend& backend, DType act, AttentionSpec spec, bool has_sinks) {
    const auto cache =
        backend.make_kv_cache(CacheLayout::uniform(1, kv_rows(1, kDim, act), kBlock), 5);
    const Uploaded sinks(backend, DType::kF32, 1, kHeads, {-40.0f, 0.5f, 1.0f, 6.0f});
    if (has_sinks) spec.sinks = sinks.vector();
    const Uploaded in(backend, act, kRows, kAll, qkv), out(backend, act, kRows, kWidth);
    StepBatch batch{positions, positions, positions, seqs, {}};
    batch.cache = cache.get();
    backend.begin_step(batch);
    backend.rope_kv_write(in.view(), {kHeads, 1, kDim, {}, {}, 1e-6f}, {}, {}, *cache, 0);
    backend.attention(in.view().columns(0, kWidth), spec, *cache, 0, out.view());
    return out.read();
  };
  const auto gpu = make_gpu_under_test(dtype);
  const auto reference = make_reference_backend();
  AttentionSpec spec{kHeads, 1, kDim, 0.125f};
  struct Case {
    int32_t window;
    bool causal;
    float cap;
    bool sinks;
  };
  for (const auto& [window, causal, cap, sinks] : {Case{0, true, 0.0f, false},
                                                   {20, true, 0.0f, true},
                                                   {0, false, 1.0f, false},
                                                   {20, false, 0.0f, false},
                                                   {20, true, 1.0f, true}}) {
    SCOPED_TRACE(str_cat(window, causal ? " causal" : " bidirectional", " cap ", cap));
    spec.window = window;
    spec.causal = causal;
    spec.soft_cap = cap;
    const auto want = run(*reference, DType::kF32, spec, sinks);
    const auto got = run(*gpu, dtype, spec, sinks);
    const double largest = 5.0;  // of 27,000 normal numbers
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], largest * (3 * rounding(dtype) + 0x1p-15)) << i;
    }
  }
}

// A whole row's norm with weights in float32, and a factor: queries are off by what the sum of the
// squares, few products and the factor round, relatively, and by a rounding to the dtype.
TEST_P(CudaParity, HeadsAreMadeAsTheSpecSays) {
  const DType dtype = GetParam();
  constexpr int32_t kHeads = 3, kDim = 64, kRows = 6;
  constexpr int64_t kWidth = kHeads * kDim, kAll = kWidth + 2 * kDim;
  const auto qkv = random_values(static_cast<size_t>(kRows * kAll), 9, dtype);
  std::vector<float> weights = random_values(static_cast<size_t>(kWidth), 10, DType::kF32);
  const std::vector<int32_t> blocks = {1, 0}, positions = {11, 12, 13, 14, 15, 16};
  const std::vector<SeqSlice> seqs = {{0, kRows, 11, blocks}};
  const auto run = [&](Backend& backend, DType act) {
    const auto cache = backend.make_kv_cache(CacheLayout::uniform(1, kv_rows(1, kDim, act), 16), 2);
    const Uploaded in(backend, act, kRows, kAll, qkv);
    const Uploaded q_norm(backend, DType::kF32, 1, kWidth, weights);
    QkvSpec spec{kHeads, 1, kDim, q_norm.vector(), {}, 1e-6f, QkNorm::kRow, true, {0.1f, 4}};
    StepBatch batch{positions, positions, positions, seqs, {}};
    batch.cache = cache.get();
    backend.begin_step(batch);
    backend.rope_kv_write(in.view(), spec, {}, {}, *cache, 0);
    std::vector<float> out = in.read();
    for (size_t row = kRows; row-- > 0;) {  // queries alone
      const auto first = out.begin() + static_cast<ptrdiff_t>(row * kAll);
      out.erase(first + kWidth, first + kAll);
    }
    return out;
  };
  const auto gpu = make_gpu_under_test(dtype);
  const auto want = run(*make_reference_backend(), DType::kF32), got = run(*gpu, dtype);
  ASSERT_EQ(got.size(), static_cast<size_t>(kRows * kWidth));
  for (size_t i = 0; i < got.size(); ++i) {
    const double size = std::abs(static_cast<double>(want[i]));
    ASSERT_NEAR(got[i], want[i], size * (rounding(dtype) + (kWidth / 2 + 16) * 0x1p-24)) << i;
  }
}

// The bits of one group, also where the blocks behind a window have gone.
TEST_P(CudaParity, GroupsHaveTablesOfTheirOwn) {
  const DType dtype = GetParam();
  constexpr int32_t kHeads = 2, kDim = 64, kRows = 100, kBlock = 16, kWindow = 20, kGone = 4;
  constexpr int64_t kWidth = kHeads * kDim, kAll = kWidth + 2 * kDim;
  const PagedRows all = kv_rows(1, kDim, dtype);
  PagedRows sliding = all;
  sliding.window = kWindow;
  const CacheLayout two{kBlock, {{all, 1}, {sliding, 1}}, {{0, 0}, {1, 0}}};
  const auto gpu = make_gpu_under_test(dtype);
  std::vector<int32_t> positions(kRows + 1);
  std::iota(positions.begin(), positions.end(), 0);
  const auto run = [&](const CacheLayout& layout, std::vector<std::vector<int32_t>> tables) {
    const auto cache = gpu->make_kv_cache(layout, 14);
    gpu->make_kv_cache(CacheLayout::uniform(1, all, 32), 3);  // of no concern to the step
    std::vector<std::vector<float>> out;
    for (const auto& [first, rows] : {std::pair{0, kRows}, {kRows, 1}}) {
      const std::vector<SeqSlice> seqs = {{0, rows, first, tables}};
      const auto own = std::span(positions).subspan(static_cast<size_t>(first), size_t(rows));
      StepBatch batch{own, own, own, seqs, {}};
      batch.cache = cache.get();
      gpu->begin_step(batch);
      for (int32_t layer = 0; layer < 2; ++layer) {
        const auto qkv =
            random_values(static_cast<size_t>(rows * kAll), uint32_t(first + layer), dtype);
        const Uploaded in(*gpu, dtype, rows, kAll, qkv), results(*gpu, dtype, rows, kWidth);
        gpu->rope_kv_write(in.view(), {kHeads, 1, kDim, {}, {}, 1e-6f}, {}, {}, *cache, layer);
        gpu->attention(in.view().columns(0, kWidth),
                       {kHeads, 1, kDim, 0.125f, layer == 1 ? kWindow : 0}, *cache, layer,
                       results.view());
        out.push_back(results.read());
      }
      if (tables.size() > 1) std::fill_n(tables[1].begin(), kGone, kNoBlock);
    }
    return out;
  };
  const std::vector<int32_t> some = {4, 0, 3, 1, 2, 6, 5}, others = {7, 9, 8, 13, 11, 12, 10};
  EXPECT_EQ(run(two, {some, others}), run(CacheLayout::uniform(2, all, kBlock), {some}));
}

class CudaQuantizedCache : public testing::TestWithParam<std::tuple<DType, DType>> {};

// Both round the same numbers to the same codes. Products see what is up to twice the largest
// number, probabilities are rounded to float16, results to the dtype.
TEST_P(CudaQuantizedCache, AttentionIsAsTheReferences) {
  const auto [dtype, kv] = GetParam();
  constexpr int32_t kHeads = 4, kRows = 70, kBlock = 16;
  const std::vector<int32_t> blocks = {4, 0, 3, 1, 2};
  const std::vector<SeqSlice> seqs = {{0, kRows, 0, blocks}};
  std::vector<int32_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 0);
  const auto gpu = make_gpu_under_test(dtype);
  const auto reference = make_reference_backend();
  for (const int32_t d : {64, 80, 128, 48}) {
    SCOPED_TRACE(d);
    const int64_t width = kHeads * d, all = width + 2 * d;
    const auto qkv = random_values(static_cast<size_t>(kRows * all), 7, dtype);
    const AttentionSpec spec{kHeads, 1, d, 0.125f};
    const auto run = [&, kv = kv](Backend& backend, DType act) {
      const auto cache =
          backend.make_kv_cache(CacheLayout::uniform(2, kv_rows(1, d, kv), kBlock), 5);
      const Uploaded in(backend, act, kRows, all, qkv), out(backend, act, kRows, width);
      StepBatch batch{positions, positions, positions, seqs, {}};
      batch.cache = cache.get();
      backend.begin_step(batch);
      backend.rope_kv_write(in.view(), {kHeads, 1, d, {}, {}, 1e-6f}, {}, {}, *cache, 1);
      backend.attention(in.view().columns(0, width), spec, *cache, 1, out.view());
      return out.read();
    };
    const auto want = run(*reference, DType::kF32), got = run(*gpu, dtype);
    const double largest = 5.0;  // of some ten thousand normal numbers
    const double bound = largest * (rounding(dtype) + 0x1p-15) +
                         (dtype == DType::kF32 ? 0.0 : 2 * largest * 0x1p-10);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
  }
}

// In float32 keys differ from the reference's by what rotating them rounds, seldom by a code.
TEST_P(CudaQuantizedCache, AModelGivesTheReferencesTokens) {
  const auto [dtype, kv] = GetParam();
  if (dtype != DType::kF32) GTEST_SKIP() << "the reference's activations are float32";
  DecoderHarness gpu(make_gpu_under_test(dtype), llama_folder(), {.kv_dtype = kv});
  DecoderHarness reference("reference", llama_folder(), {.kv_dtype = kv});
  const Rows want = generate_alone(reference, 0, prompt(40, 2), 12);
  const Rows got = generate_alone(gpu, 0, prompt(40, 2), 12);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(argmax(got[i]), argmax(want[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaQuantizedCache,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                          testing::Values(DType::kI8, DType::kF8E4M3, DType::kU4)),
                         [](const auto& test) {
                           return std::string(dtype_name(std::get<0>(test.param))) + "_" +
                                  dtype_name(std::get<1>(test.param));
                         });

TEST_P(CudaParity, AddRmsNorm) {
  const DType dtype = GetParam();
  const auto gpu = make_gpu_under_test(dtype);
  const auto reference = make_reference_backend();
  for (const int64_t cols : {64, 72, 1000, 4096}) {
    SCOPED_TRACE(cols);
    const int64_t rows = 3;
    const auto count = static_cast<size_t>(rows * cols);
    const auto residual = random_values(count, 1, dtype), delta = random_values(count, 2, dtype);
    const auto weight = random_values(static_cast<size_t>(cols), 3, dtype);
    const auto run = [&](Backend& backend, DType act) {
      const Uploaded a(backend, act, rows, cols, residual), b(backend, act, rows, cols, delta);
      const Uploaded w(backend, act, 1, cols, weight), out(backend, act, rows, cols);
      backend.add_rms_norm(a.view(), b.view(), w.vector(), 1e-5f, out.view());
      return out.read();
    };
    const auto want = run(*reference, DType::kF32), got = run(*gpu, dtype);
    // The sum is rounded to the dtype, which moves the norm by less; then the result is.
    for (size_t i = 0; i < count; ++i) {
      const double sum = std::abs(static_cast<double>(residual[i]) + static_cast<double>(delta[i]));
      const double scale = sum > 0 ? std::abs(static_cast<double>(want[i])) / sum : 0.0;
      const double most = 3 * rounding(dtype) * std::abs(static_cast<double>(want[i])) +
                          8 * 0x1p-24 * (1 + scale * sum);
      ASSERT_NEAR(got[i], want[i], most) << i;
    }
  }
}

/// A buffer with values that fit the dtype, written in the order of the ops.
TEST_P(CudaParity, WritesRowsInTheOrderOfTheOps) {
  const DType dtype = GetParam();
  const auto gpu = make_gpu_under_test(dtype);
  constexpr int64_t kRows = 5, kCols = 70000;  // more than a piece of pinned memory
  const Uploaded wide(*gpu, dtype, kRows, kCols + 6), sum(*gpu, dtype, kRows, kCols);
  const TensorView part = wide.view().columns(6, kCols);
  std::vector<float> values, want(kRows * kCols);
  for (uint32_t round = 0; round < 3; ++round) {
    values = random_values(kRows * kCols, round, dtype);
    gpu->write_rows(values, part);
    if (round == 0) {
      gpu->write_rows(values, sum.view());
      want = values;
    } else {
      gpu->add(part, sum.view());
      for (size_t i = 0; i < want.size(); ++i) want[i] = round_to(dtype, want[i] + values[i]);
    }
    // What is written next must not reach the sum that is on its way.
    std::fill(values.begin(), values.end(), 1e30f);
  }
  EXPECT_EQ(sum.read(), want);
  // In parts of rows, more of them than there is pinned memory for.
  constexpr int64_t kPart = 6999;
  for (int32_t round = 0; round < 31; ++round) {
    for (float& x : want) x = -x;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t at = 0; at < kCols; at += kPart) {
        const int64_t count = std::min(kPart, kCols - at);
        const std::span<const float> some(want.data() + row * kCols + at,
                                          static_cast<size_t>(count));
        gpu->write_rows(some, sum.view().rows_from(row, 1).columns(at, count));
      }
    }
  }
  EXPECT_EQ(sum.read(), want);
  gpu->write_rows({}, sum.view().first_rows(0));
  EXPECT_THROW(gpu->write_rows(values, sum.view().first_rows(2)), InternalError);
}

struct SegmentCase {
  int32_t heads, head_dim;
  std::vector<int32_t> ends;
};

/// Rows [first, first + rows) of q, k and v side by side.
std::vector<float> run_segments(Backend& backend, DType dtype, const SegmentCase& c,
                                const std::vector<float>& qkv, int32_t first, int64_t rows) {
  const int64_t cols = int64_t{c.heads} * c.head_dim;
  const Uploaded in(backend, dtype, c.ends.back(), 3 * cols, qkv), out(backend, dtype, rows, cols);
  backend.segment_attention({.q = in.view().columns(0, cols).rows_from(first, rows),
                             .k = in.view().columns(cols, cols),
                             .v = in.view().columns(2 * cols, cols),
                             .first = first,
                             .segment_ends = c.ends,
                             .heads = c.heads,
                             .head_dim = c.head_dim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             .out = out.view()});
  return out.read();
}

// Few roundings of float32 for scores, probabilities and sums; with tensor cores the probabilities
// are rounded to the dtype, as results are.
TEST_P(CudaParity, SegmentAttentionAndItsPieces) {
  const DType dtype = GetParam();
  const auto gpu = make_gpu_under_test(dtype);
  const auto reference = make_reference_backend();
  for (const SegmentCase& c : {SegmentCase{2, 80, {1, 66, 130}},
                               {1, 72, {64, 65}},
                               {1, 128, {3, 40}},
                               {2, 16, {70}},
                               {1, 64, {5, 9, 13, 17, 80}},
                               {1, 8, {2, 4}}}) {
    SCOPED_TRACE(str_cat(c.heads, " x ", c.head_dim));
    const int64_t cols = int64_t{c.heads} * c.head_dim, total = c.ends.back();
    const auto qkv = random_values(static_cast<size_t>(total * 3 * cols), 21, dtype);
    const auto want = run_segments(*reference, DType::kF32, c, qkv, 0, total);
    const auto got = run_segments(*gpu, dtype, c, qkv, 0, total);
    const double largest = 5.0;  // of some ten thousand normal numbers
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], largest * (2 * rounding(dtype) + 0x1p-15)) << i;
    }
    const auto first = static_cast<int32_t>(total / 3);
    const std::vector<float> part(got.begin() + first * cols, got.end());
    EXPECT_EQ(run_segments(*gpu, dtype, c, qkv, first, total - first), part);
  }
}

TEST(CudaVisionOps, RefuseWhatBreaksTheirContracts) {
  const auto gpu = make_gpu_under_test(DType::kF32);
  const Uploaded x(*gpu, DType::kF32, 4, 16), out(*gpu, DType::kF32, 4, 16);
  parity::expect_segment_contract(*gpu, x.view(), out.view());
  const std::vector<int32_t> beyond = {0, 4}, twice = {2, 2};
  const TensorView two = x.view().first_rows(2);
  EXPECT_THROW(gpu->scatter_rows(two, beyond, out.view()), InternalError);
  EXPECT_THROW(gpu->scatter_rows(two, twice, out.view()), InternalError);
  EXPECT_THROW(gpu->rotate(x.view(), x.view(), 3, 5), InternalError);
  EXPECT_THROW(gpu->rotate(x.view(), x.view(), 2, 8), InternalError);
  EXPECT_THROW(gpu->add(two, out.view()), InternalError);
  EXPECT_THROW(gpu->layer_norm(x.view(), x.vector(), x.vector(), 1e-6f, two), InternalError);
}

/// A random row whose bias names each id once.
test::RandomCase random_row(int32_t vocab_size, uint32_t seed) {
  test::RandomCase out(vocab_size, vocab_size, seed);
  std::sort(out.bias.begin(), out.bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  const auto same = [](const LogitBias& a, const LogitBias& b) { return a.token == b.token; };
  out.bias.erase(std::unique(out.bias.begin(), out.bias.end(), same), out.bias.end());
  out.row.bias = out.bias;
  out.row.num_logprobs = std::min(out.row.num_logprobs, vocab_size);
  return out;
}

// Rows with lists of all lengths in one call: each finds its own. The last two ask for more
// log-probabilities than the device sorts.
TEST(CudaSample, EveryRowIsAsTheReferences) {
  constexpr int32_t kVocab = 1500;
  std::vector<test::RandomCase> cases;
  for (uint32_t seed = 0; seed < 24; ++seed) cases.push_back(random_row(kVocab, seed));
  for (size_t i = 22; i < 24; ++i) cases[i].row.num_logprobs = kVocab;
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  for (test::RandomCase& c : cases) {
    c.row.logits_row = static_cast<int32_t>(rows.size());
    c.row.bias = c.bias;
    c.row.masked = c.masked;
    c.row.banned = c.banned;
    c.row.seen = c.seen;
    c.row.allowed = c.allowed.empty() ? nullptr : c.allowed.data();
    rows.push_back(c.row);
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
  }
  std::vector<SampleResult> want(rows.size()), got(rows.size());
  const auto backend = make_gpu_under_test(DType::kF32);
  const Backend::Buffer memory = backend->allocate(logits.size() * sizeof(float));
  backend->upload(logits.data(), memory.data, logits.size() * sizeof(float));
  const auto count = static_cast<int64_t>(rows.size());
  backend->sample(TensorView(memory.data, DType::kF32, {count, kVocab}), kVocab, rows, got);
  reference_sample(TensorView(logits.data(), DType::kF32, {count, kVocab}), kVocab, rows, want);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string what = str_cat("seed ", i);
    ASSERT_EQ(got[i].token, want[i].token) << what;
    ASSERT_EQ(got[i].top.size(), want[i].top.size()) << what;
    for (size_t t = 0; t < got[i].top.size(); ++t) {
      ASSERT_EQ(got[i].top[t].token, want[i].top[t].token) << what << ", place " << t;
      test::expect_logprob(got[i].top[t].logprob, want[i].top[t].logprob, what);
    }
    if (rows[i].num_logprobs >= 0) {
      test::expect_logprob(got[i].logprob, want[i].logprob, what);
      EXPECT_EQ(got[i].rank, want[i].rank) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaParity,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace headrace
