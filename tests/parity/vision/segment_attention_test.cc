// segment_attention against the reference, and against itself cut into other pieces.

#include <cmath>
#include <cstring>
#include <limits>

#include "parity/parity.h"
#include "parity/vision/segment_contract.h"

namespace headrace::parity {
namespace {

/// Rows of q, k and v side by side, as a tower's linear leaves them, and their segments.
struct Case {
  int32_t heads, head_dim;
  std::vector<int32_t> ends;
  std::vector<float> qkv;
  float scale;
  DType products = DType::kF32;

  int64_t cols() const { return int64_t{heads} * head_dim; }
  int64_t rows() const { return ends.back(); }
  const float* query(int64_t row, int64_t column) const {
    return &qkv[size_t(row * 3 * cols() + column)];
  }
  const float* key(int64_t row, int64_t column) const { return query(row, cols() + column); }
};

Case make_case(Random& random, int32_t heads, int32_t head_dim, std::vector<int32_t> ends) {
  Case out{heads, head_dim, std::move(ends), {}, 1.0f / std::sqrt(float(head_dim))};
  out.qkv = random.uniforms(out.rows() * 3 * out.cols());
  return out;
}

/// Rows [first, first + rows) of the output.
std::vector<float> run(Backend& backend, const Case& c, int32_t first, int64_t rows,
                       bool in_place = false) {
  const Matrix qkv(backend, c.rows(), 3 * c.cols(), c.qkv), out(backend, rows, c.cols());
  SegmentAttention args;
  args.q = qkv.view().columns(0, c.cols()).rows_from(first, rows);
  args.k = qkv.view().columns(c.cols(), c.cols());
  args.v = qkv.view().columns(2 * c.cols(), c.cols());
  args.first = first;
  args.segment_ends = c.ends;
  args.heads = c.heads;
  args.head_dim = c.head_dim;
  args.scale = c.scale;
  args.products = c.products;
  args.out = in_place ? args.q : out.view();
  backend.segment_attention(args);
  if (!in_place) return out.values();
  const auto all = qkv.values();
  std::vector<float> got;
  for (int64_t i = first; i < first + rows; ++i) {
    const auto row = all.begin() + i * 3 * c.cols();
    got.insert(got.end(), row, row + c.cols());
  }
  return got;
}

std::vector<float> run(Backend& backend, const Case& c) { return run(backend, c, 0, c.rows()); }

double length(const float* x, int32_t size) {
  double sum = 0.0;
  for (int32_t i = 0; i < size; ++i) sum += double{x[i]} * double{x[i]};
  return std::sqrt(sum);
}

/// What the sum of magnitudes that a score of each row and head is made of can't exceed: the
/// product of the query's length and of its segment's longest key's (Cauchy and Schwarz).
std::vector<double> score_sizes(const Case& c) {
  std::vector<double> out(size_t(c.rows() * c.heads));
  int32_t start = 0;
  for (const int32_t end : c.ends) {
    for (int32_t head = 0; head < c.heads; ++head) {
      const int64_t column = int64_t{head} * c.head_dim;
      double longest = 0.0;
      for (int32_t key = start; key < end; ++key) {
        longest = std::max(longest, length(c.key(key, column), c.head_dim));
      }
      for (int32_t row = start; row < end; ++row) {
        out[size_t(row * c.heads + head)] =
            longest * length(c.query(row, column), c.head_dim) * double{c.scale};
      }
    }
    start = end;
  }
  return out;
}

// A score is a sum of d products of a scaled query: off by gamma_{d+4} of the sum S of their
// magnitudes, which with the subtraction of the reference (off by 2 S at most, once) makes
// e = (d + 8) u S; a probability is off by the factor exp(e) and two ulp of exp2. The sums of p and
// of p * v over n keys, rescaled at most once a tile, are off by gamma_{n + n / 64 + 4} each. Both
// are relative to the mean of |v| under the same probabilities.
// With products of bf16 a score is off by 2 roundoffs of bf16 times S more, and p and v by one
// each. Scores are bounded here so that exp(e) - 1 < 1.2 e.
double bound(const Case& c, double score_size, double mean_magnitude) {
  const double n = double(c.rows());
  const double roundoff = c.products == DType::kBF16 ? kBF16Roundoff : 0.0;
  const double e = (double(c.head_dim + 8) * kF32Roundoff + 2.02 * roundoff) * score_size;
  const double relative =
      2.0 * 1.2 * e + 2.02 * roundoff + (2.0 * (n + n / 64.0 + 4.0) + 12.0) * kF32Roundoff;
  return relative * mean_magnitude;
}

void expect_close(const Case& c, const std::vector<float>& got, const std::vector<float>& want,
                  const std::vector<float>& magnitudes) {
  const auto sizes = score_sizes(c);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double size = sizes[i / size_t(c.head_dim)];
    ASSERT_NEAR(got[i], want[i], bound(c, size, double{magnitudes[i]}))
        << "row " << i / size_t(c.cols()) << " of " << c.rows() << ", column "
        << i % size_t(c.cols()) << ", " << c.heads << " x " << c.head_dim;
  }
}

/// The same with |v|: its output is the mean of |v| that the bound is relative to.
Case with_magnitudes(Case c) {
  for (int64_t row = 0; row < c.rows(); ++row) {
    float* v = &c.qkv[size_t((row * 3 + 2) * c.cols())];
    for (int64_t i = 0; i < c.cols(); ++i) v[i] = std::abs(v[i]);
  }
  return c;
}

class SegmentParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }

  void expect_parity(Case c) {
    const auto backend = make_backend(GetParam());
    const auto reference = make_cpu_backend({.isa = "reference"});
    const auto want = run(*reference, c), magnitudes = run(*reference, with_magnitudes(c));
    for (const DType products : {DType::kF32, DType::kBF16}) {
      c.products = products;
      expect_close(c, run(*backend, c), want, magnitudes);
    }
  }
};

TEST_P(SegmentParity, MatchesReference) {
  Random random(71);
  SCOPED_TRACE(random.trace());
  for (const int32_t head_dim : {8, 16, 24, 40, 64, 72, 80, 104, 128}) {
    const int32_t heads = head_dim == 80 ? 3 : 1;
    // Segments of one row, of a tile and one row more or less, of several tiles and tasks.
    expect_parity(make_case(random, heads, head_dim, {1}));
    expect_parity(make_case(random, heads, head_dim, {1, 2, 5, 66, 129, 130}));
    expect_parity(make_case(random, heads, head_dim, {64, 129, 192, 499}));
  }
}

// Scores grow along a segment by far more than one reference can take: sums made with the first
// ones are scaled down, to nothing.
TEST_P(SegmentParity, FollowsScoresThatGrow) {
  Random random(72);
  SCOPED_TRACE(random.trace());
  Case c = make_case(random, 2, 16, {333});
  for (int64_t row = 0; row < c.rows(); ++row) {
    for (int64_t i = 0; i < c.cols(); ++i) {
      c.qkv[size_t(row * 3 * c.cols() + i)] = 1.0f;
      c.qkv[size_t((row * 3 + 1) * c.cols() + i)] = 0.25f * float(row / 8);
    }
  }
  // Keys and queries that bf16 has exactly: only the sums' roundoff is left of a score.
  const auto backend = make_backend(GetParam());
  const auto reference = make_cpu_backend({.isa = "reference"});
  c.scale = 1.0f;
  expect_close(c, run(*backend, c), run(*reference, c), run(*reference, with_magnitudes(c)));
}

TEST_P(SegmentParity, ScoresFarFromZeroGiveNoNaN) {
  const auto backend = make_backend(GetParam());
  Random random(73);
  SCOPED_TRACE(random.trace());
  for (const float sign : {1.0f, -1.0f}) {
    Case c = make_case(random, 1, 8, {70});
    for (int64_t row = 0; row < c.rows(); ++row) {
      for (int64_t i = 0; i < 8; ++i) {
        c.qkv[size_t(row * 24 + i)] = 1.0f;
        c.qkv[size_t(row * 24 + 8 + i)] = sign * 1000.0f;
        c.qkv[size_t(row * 24 + 16 + i)] = 3.0f;
      }
    }
    for (const DType products : {DType::kF32, DType::kBF16}) {
      c.products = products;
      for (const float x : run(*backend, c)) ASSERT_EQ(x, 3.0f);
    }
  }
}

TEST_P(SegmentParity, PiecesAndThreadsChangeNoBit) {
  Random random(74);
  SCOPED_TRACE(random.trace());
  for (const int32_t head_dim : {64, 72, 80}) {
    Case c = make_case(random, 2, head_dim, {1, 130, 131, 700});
    for (const DType products : {DType::kF32, DType::kBF16}) {
      c.products = products;
      const auto want = run(*make_backend(GetParam(), 1), c);
      for (const int32_t threads : {1, 2, 3}) {
        const auto backend = make_backend(GetParam(), threads);
        ASSERT_EQ(run(*backend, c), want) << threads;
        ASSERT_EQ(run(*backend, c, 0, c.rows(), true), want) << "in place";
        for (const auto& [first, rows] :
             {std::pair{0, 1}, {0, 131}, {129, 3}, {150, 33}, {699, 1}, {100, 600}, {7, 0}}) {
          const std::vector<float> part(want.begin() + first * c.cols(),
                                        want.begin() + (first + rows) * c.cols());
          ASSERT_EQ(run(*backend, c, first, rows), part) << first << " + " << rows;
        }
      }
    }
  }
}

// Of many rows keys and values are packed before they are used, a few heads at a time. Of few rows
// they are not: the same bits, and right ones.
TEST_P(SegmentParity, LongSegmentsArePackedAheadWithTheSameBits) {
  Random random(76);
  SCOPED_TRACE(random.trace());
  Case c = make_case(random, 5, 120, {70, 2201, 2202});
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto want = run(*reference, c, 1999, 2);
  const auto magnitudes = run(*reference, with_magnitudes(c), 1999, 2);
  for (const DType products : {DType::kF32, DType::kBF16}) {
    c.products = products;
    const auto all = run(*make_backend(GetParam(), 1), c);
    ASSERT_EQ(run(*make_backend(GetParam(), 3), c), all);
    const auto backend = make_backend(GetParam(), 2);
    for (const auto& [first, rows] : {std::pair{1999, 2}, {60, 300}, {2200, 2}}) {
      const std::vector<float> part(all.begin() + first * c.cols(),
                                    all.begin() + (first + rows) * c.cols());
      ASSERT_EQ(run(*backend, c, first, rows), part) << first << " + " << rows;
    }
    for (size_t i = 0; i < want.size(); ++i) {
      // Each |q . k| is below d, its share of the score below sqrt(d).
      const double size = std::sqrt(double(c.head_dim));
      ASSERT_NEAR(all[size_t(1999 * c.cols()) + i], want[i], bound(c, size, double{magnitudes[i]}));
    }
  }
}

TEST_P(SegmentParity, OtherSegmentsChangeNoBit) {
  Random random(75);
  SCOPED_TRACE(random.trace());
  const auto backend = make_backend(GetParam());
  Case c = make_case(random, 2, 72, {65, 200, 263});
  for (const DType products : {DType::kF32, DType::kBF16}) {
    c.products = products;
    const auto want = run(*backend, c);
    Case other = c;
    for (int64_t row = 0; row < c.rows(); ++row) {
      if (row >= 65 && row < 200) continue;
      std::fill_n(other.qkv.begin() + row * 3 * c.cols(), 3 * c.cols(),
                  std::numeric_limits<float>::quiet_NaN());
    }
    const auto got = run(*backend, other);
    const auto first = size_t(65 * c.cols()), count = size_t(135 * c.cols());
    ASSERT_EQ(0, std::memcmp(&got[first], &want[first], count * sizeof(float)));
    ASSERT_TRUE(std::isnan(got.front()) && std::isnan(got.back()));
  }
}

TEST_P(SegmentParity, RefusesWhatBreaksItsContract) {
  const auto backend = make_backend(GetParam());
  const Matrix x(*backend, 4, 16), out(*backend, 4, 16);
  parity::expect_segment_contract(*backend, x.view(), out.view());
}

INSTANTIATE_TEST_SUITE_P(Isas, SegmentParity,
                         testing::Values("baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
