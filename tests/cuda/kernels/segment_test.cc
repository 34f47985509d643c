// segment_attention() in the emulation, against softmax in double, and against itself cut into
// other pieces.

#include "cuda/kernels/vision/segment_attention.h"

#include <cmath>
#include <limits>

#include "backend/contract/vision_ops.h"
#include "backend/reference/reference_vision.h"
#include "base/check.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

/// Rows of q, k and v side by side, as a tower's linear leaves them, and their segments.
struct Case {
  DType dtype = DType::kBF16;
  int32_t heads = 1, head_dim = 64;
  std::vector<int32_t> ends;
  std::vector<float> qkv;
  float scale = 0.0f;
  int64_t gap = 0;  // elements behind each row

  int64_t cols() const { return int64_t{heads} * head_dim; }
  int64_t rows() const { return ends.back(); }
  float& at(int64_t row, int64_t column) {
    return qkv[static_cast<size_t>(row * 3 * cols() + column)];
  }
};

Case make_case(Random& random, DType dtype, int32_t heads, int32_t head_dim,
               std::vector<int32_t> ends) {
  Case out{dtype, heads, head_dim, std::move(ends), {}, 1.0f / std::sqrt(float(head_dim)), 8};
  out.qkv = random.uniforms(dtype, out.rows() * 3 * out.cols());
  return out;
}

/// `count` columns of a matrix.
Matrix columns(const DeviceMatrix& x, int64_t first, int64_t count) {
  const Matrix all = x.matrix();
  auto* const data =
      static_cast<char*>(all.data) + static_cast<size_t>(first) * dtype_size(x.dtype());
  return {data, all.rows, count, all.stride};
}

/// Rows [first, first + rows) of the output.
std::vector<float> run(const Case& c, int64_t first, int64_t rows, bool in_place = false) {
  const DeviceMatrix qkv(c.dtype, c.rows(), 3 * c.cols(), c.qkv, c.gap);
  const DeviceMatrix out(c.dtype, rows, c.cols(), 8);
  const DeviceArray<SegmentItem> items(segment_items(c.ends));
  SegmentAttentionArgs args{.dtype = c.dtype,
                            .k = columns(qkv, c.cols(), c.cols()),
                            .v = columns(qkv, 2 * c.cols(), c.cols()),
                            .first = first,
                            .heads = c.heads,
                            .head_dim = c.head_dim,
                            .scale = c.scale,
                            .items = items.data(),
                            .num_items = static_cast<int32_t>(items.size()),
                            .out = out.matrix()};
  Matrix q = columns(qkv, 0, c.cols());
  q.data = static_cast<char*>(q.data) + static_cast<size_t>(first * q.stride) * dtype_size(c.dtype);
  q.rows = rows;
  args.q = q;
  if (in_place) args.out = q;
  segment_attention(args, nullptr);
  if (!in_place) return out.values();
  std::vector<float> got;
  for (int64_t i = first; i < first + rows; ++i) {
    for (int64_t j = 0; j < c.cols(); ++j) got.push_back(qkv.at(i, j));
  }
  return got;
}

std::vector<float> run(const Case& c) { return run(c, 0, c.rows()); }

std::vector<float> reference(Case c) {
  std::vector<float> out(static_cast<size_t>(c.rows() * c.cols()));
  const TensorView qkv(c.qkv.data(), DType::kF32, {c.rows(), 3 * c.cols()});
  reference_segment_attention({.q = qkv.columns(0, c.cols()),
                               .k = qkv.columns(c.cols(), c.cols()),
                               .v = qkv.columns(2 * c.cols(), c.cols()),
                               .segment_ends = c.ends,
                               .heads = c.heads,
                               .head_dim = c.head_dim,
                               .scale = c.scale,
                               .out = TensorView(out.data(), DType::kF32, {c.rows(), c.cols()})});
  return out;
}

/// The same with |v|: its output is the mean of |v| that errors are relative to.
std::vector<float> magnitudes(Case c) {
  for (int64_t row = 0; row < c.rows(); ++row) {
    for (int64_t i = 2 * c.cols(); i < 3 * c.cols(); ++i) c.at(row, i) = std::abs(c.at(row, i));
  }
  return reference(c);
}

// Numbers are at most 1: the magnitudes that a score is made of add up to S = scale * d at most.
// Products are exact in float32 or rounded once; d sums, each with the error of a truncation, and
// the scaling make e = (2 d + 16) u S; a probability is off by the factor exp(e) and 2 ulp of exp2.
// The sums of p and of p * v over n keys, rescaled once a tile, are off by 2 (n + n / 64 + 4) u
// each. With tensor cores p is rounded to the dtype for one of them, or, in float16, lands between
// multiples of 2^-24, while the sum of all p is at least 1. The result is rounded to the dtype.
double bound(const Case& c, double want, double magnitude) {
  const double n = double(c.rows()), u = 0x1p-24, round = roundoff(c.dtype);
  const double e = (2.0 * c.head_dim + 16.0) * u * std::abs(double{c.scale}) * c.head_dim;
  const double tiny = c.dtype == DType::kF16 ? n * 0x1p-25 : 0.0;
  const double relative =
      2.02 * e + (4.0 * (n + n / 64.0 + 4.0) + 12.0) * u + (c.dtype == DType::kF32 ? 0.0 : round);
  return relative * magnitude + tiny + 1.01 * round * std::abs(want);
}

void expect_reference(const Case& c) {
  SCOPED_TRACE(str_cat(dtype_name(c.dtype), " ", c.heads, " x ", c.head_dim, ", ", c.rows()));
  const auto got = run(c), want = reference(c), sizes = magnitudes(c);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], bound(c, double{want[i]}, double{sizes[i]})) << i;
  }
}

class Segments : public KernelTest {
 protected:
  Random random_{91};
};

TEST_P(Segments, MatchTheReference) {
  SCOPED_TRACE(random_.trace());
  for (const int32_t head_dim : {8, 24, 64, 72, 80, 88, 128}) {
    // Segments of one row, of a tile and one row more or less.
    const int32_t heads = head_dim == 80 ? 3 : 1;
    expect_reference(make_case(random_, DType::kBF16, heads, head_dim, {1, 2, 5, 69, 134, 197}));
  }
  for (const int32_t head_dim : {64, 72, 128}) {
    expect_reference(make_case(random_, DType::kF16, 2, head_dim, {65, 66}));
    expect_reference(make_case(random_, DType::kF32, 2, head_dim, {1, 66, 70}));
  }
  expect_reference(make_case(random_, DType::kBF16, 1, 72, {1}));
}

// Windows of 16 and 4 rows, many of them in a tile of rows.
TEST_P(Segments, ManyWindowsMatchTheReference) {
  SCOPED_TRACE(random_.trace());
  std::vector<int32_t> ends;
  for (int32_t end = 0; end < 200;) ends.push_back(end += ends.size() % 3 == 2 ? 4 : 16);
  for (const DType dtype : kDTypes) expect_reference(make_case(random_, dtype, 1, 80, ends));
}

// What tensor cores don't take: rows that aren't aligned, scales of 0 and below.
TEST_P(Segments, OddOnesMatchTheReference) {
  SCOPED_TRACE(random_.trace());
  Case c = make_case(random_, DType::kBF16, 1, 24, {7, 70});
  c.gap = 3;
  expect_reference(c);
  c.gap = 0;
  for (const float scale : {0.0f, -0.25f}) {
    c.scale = scale;
    expect_reference(c);
  }
}

// Scores grow along a segment by far more than one maximum can stand for. They are exact.
TEST_P(Segments, FollowScoresThatGrow) {
  for (const DType dtype : kDTypes) {
    Case c = make_case(random_, dtype, 1, 16, {150});
    for (int64_t row = 0; row < c.rows(); ++row) {
      for (int64_t i = 0; i < 16; ++i) {
        c.at(row, i) = 1.0f;
        c.at(row, 16 + i) = 0.25f * float(row / 8);
      }
    }
    c.scale = 1.0f;
    const auto got = run(c), want = reference(c), sizes = magnitudes(c);
    // A score of up to 76 is rounded to units of log2 and subtracted: off by 3 u of it.
    const double more = 3 * 0x1p-24 * 76.0;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i],
                  bound(c, double{want[i]}, double{sizes[i]}) + 2.02 * more * double{sizes[i]});
    }
  }
}

TEST_P(Segments, PiecesChangeNoBit) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    const Case c = make_case(random_, dtype, 2, 72, {1, 80, 81, 160});
    const auto want = run(c);
    ASSERT_EQ(run(c, 0, c.rows(), true), want) << "in place";
    for (const auto& [first, rows] :
         {std::pair<int64_t, int64_t>{0, 1}, {0, 81}, {79, 3}, {90, 33}, {159, 1}, {7, 0}}) {
      const std::vector<float> part(want.begin() + first * c.cols(),
                                    want.begin() + (first + rows) * c.cols());
      ASSERT_EQ(run(c, first, rows), part) << first << " + " << rows;
    }
  }
}

TEST_P(Segments, OtherSegmentsChangeNoBit) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    const Case c = make_case(random_, dtype, 1, 80, {33, 110, 140});
    Case other = c;
    for (int64_t row = 0; row < c.rows(); ++row) {
      if (row >= 33 && row < 110) continue;
      for (int64_t i = 0; i < 3 * c.cols(); ++i) {
        other.at(row, i) = std::numeric_limits<float>::quiet_NaN();
      }
    }
    const auto want = run(c), got = run(other);
    for (int64_t i = 33 * c.cols(); i < 110 * c.cols(); ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], want[static_cast<size_t>(i)]);
    }
    ASSERT_TRUE(std::isnan(got.front()) && std::isnan(got.back()));
  }
}

HEADRACE_KERNEL_TESTS(Segments);

TEST(SegmentItems, CoverEverySegmentInOrder) {
  const std::vector<int32_t> ends = {1, 65, 130, 131};
  const auto items = segment_items(ends);
  ASSERT_EQ(items.size(), 5u);
  const SegmentItem want[] = {
      {0, 1, 0, 1}, {1, 65, 1, 65}, {65, 129, 65, 130}, {129, 130, 65, 130}, {130, 131, 130, 131}};
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(items[i].row, want[i].row);
    EXPECT_EQ(items[i].end_row, want[i].end_row);
    EXPECT_EQ(items[i].first_key, want[i].first_key);
    EXPECT_EQ(items[i].end_key, want[i].end_key);
  }
  EXPECT_TRUE(segment_items({}).empty());
}

}  // namespace
}  // namespace headrace::cuda
