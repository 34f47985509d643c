// linear and linear_gate_mul over quantized weights: every kernel set against the reference, and
// against itself in other company.

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "every_case.h"
#include "parity/linear/linear_harness.h"

namespace headrace::parity {
namespace {

// Nothing here divides by a panel, a tile or a group of k; the larger ones span several of each.
constexpr Shape kShapes[] = {{1, 1}, {6, 2}, {66, 33}, {64, 64}, {130, 65}, {94, 301}, {200, 1030}};
constexpr uint64_t kCaseSeed = 21;

constexpr QuantFormat kFormats[] = {{.bits = 8, .group_size = 32},  {.bits = 8, .group_size = 64},
                                    {.bits = 8, .group_size = 128}, {.bits = 4, .group_size = 32},
                                    {.bits = 4, .group_size = 64},  {.bits = 4, .group_size = 128}};

using Param = std::tuple<std::string, QuantFormat>;

std::string format_name(const QuantFormat& format) {
  return str_cat("int", format.bits, "_g", format.group_size);
}

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param) + "_" + format_name(std::get<1>(info.param));
}

std::unique_ptr<PackedWeight> pack(Backend& backend, const StoredMatrix& stored, WeightUse use,
                                   const QuantFormat& format) {
  return backend.pack_weight({{stored.part()}, DType::kBF16, use, format});
}

/// x [rows, k] through a quantized weight; empty bias: none.
std::vector<float> run(Backend& backend, const Problem& p, const QuantFormat& format, WeightUse use,
                       const std::vector<float>& x) {
  const StoredMatrix stored(p.weight, p.n, p.k, DType::kF32);
  return multiply(backend, p, *pack(backend, stored, use, format), use, x);
}

/// A problem with the reference's answers for the most rows: those of fewer are their first.
struct Case {
  Problem p;
  std::vector<float> x;
  std::vector<float> sums;        ///< [rows][n]
  std::vector<float> gate_mul;    ///< [rows][n / 2]; empty for odd n
  std::vector<double> magnitude;  ///< [rows][n] at least sum |x||w| + |bias|, as rounded
};

double group_top(const float* values, int64_t count) {
  double top = 0.0;
  for (int64_t i = 0; i < count; ++i) top = std::max(top, std::abs(double{values[i]}));
  return top;
}

/// Rounding moves an activation by at most half a step, top / 254. A weight w = scale * code whose
/// scale fits the codes by least squares is at most 1.5 times the group's largest: the scale is no
/// more than the largest |w| / |code| of a code that isn't 0, which clipping (at 0.72 of the top)
/// and rounding (of half a code up to one) keep below 1.5 steps. bf16 adds a part in 256.
std::vector<double> magnitudes(const Problem& p, const std::vector<float>& x, int64_t size) {
  std::vector<double> out(size_t(kMostRows * p.n));
  for (int64_t i = 0; i < kMostRows; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = p.bias.empty() ? 0.0 : std::abs(double{p.bias[size_t(j)]});
      for (int64_t first = 0; first < p.k; first += size) {
        const int64_t count = std::min(size, p.k - first);
        const float* row = &x[size_t(i * p.k + first)];
        double activations = static_cast<double>(count) * group_top(row, count) / 254.0;
        for (int64_t k = 0; k < count; ++k) activations += std::abs(double{row[k]});
        sum += 1.51 * group_top(&p.weight[size_t(j * p.k + first)], count) * activations;
      }
      out[size_t(i * p.n + j)] = sum;
    }
  }
  return out;
}

/// The same for every ISA, so that the reference computes them once.
const std::vector<Case>& cases(const QuantFormat& format) {
  static std::map<std::string, std::vector<Case>> made;
  std::vector<Case>& out = made[format_name(format)];
  if (!out.empty()) return out;
  Random random(kCaseSeed);
  const auto reference = make_cpu_backend({.isa = "reference"});
  for (const Shape shape : kShapes) {
    Case c{random_problem(random, shape), random.uniforms(kMostRows * shape.k), {}, {}, {}};
    if (shape.n == 130) c.p.bias.clear();
    c.sums = run(*reference, c.p, format, WeightUse::kLinear, c.x);
    if (shape.n % 2 == 0) c.gate_mul = run(*reference, c.p, format, WeightUse::kGateUp, c.x);
    c.magnitude = magnitudes(c.p, c.x, format.group_size);
    out.push_back(std::move(c));
  }
  return out;
}

class QuantLinear : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(isa()); }
  std::string isa() const { return std::get<0>(GetParam()); }
  QuantFormat format() const { return std::get<1>(GetParam()); }

  /// The integer sums of G groups are exact; each is multiplied by scale * step (rounded) and added
  /// (rounded; twice without fused multiply-add), then the bias. By Higham's bound (Accuracy and
  /// Stability, 3.1) the result is off by at most gamma_{G+4} A, A = sum |x||w| + |bias|; the
  /// reference's own rounding to float32 is one more.
  double bound(const Case& c, size_t at) const {
    const double groups = std::ceil(static_cast<double>(c.p.k) / format().group_size);
    const double m = (groups + 5.0) * kF32Roundoff;
    return c.magnitude[at] * m / (1.0 - m);
  }
};

TEST_P(QuantLinear, MatchesReference) {
  const auto backend = make_backend(isa());
  for (const Case& c : cases(format())) {
    for (const int64_t rows : kRows) {
      const auto got =
          run(*backend, c.p, format(), WeightUse::kLinear, first_rows(c.x, rows, c.p.k));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < c.p.n; ++j) {
          const auto at = size_t(i * c.p.n + j);
          ASSERT_NEAR(got[at], c.sums[at], bound(c, at)) << place(c.p, rows, i, j, kCaseSeed);
        }
      }
    }
  }
}

TEST_P(QuantLinear, GateMulMatchesReference) {
  const auto backend = make_backend(isa());
  for (const Case& c : cases(format())) {
    if (c.p.n % 2 != 0) continue;
    const int64_t half = c.p.n / 2;
    const auto got = run(*backend, c.p, format(), WeightUse::kGateUp, c.x);
    for (int64_t i = 0; i < kMostRows; ++i) {
      for (int64_t j = 0; j < half; ++j) {
        const auto gate_at = size_t(i * c.p.n + j), up_at = gate_at + size_t(half);
        const double tolerance =
            gate_mul_bound({c.sums[gate_at], bound(c, gate_at)}, {c.sums[up_at], bound(c, up_at)});
        const auto at = size_t(i * half + j);
        ASSERT_NEAR(got[at], c.gate_mul[at], tolerance) << place(c.p, kMostRows, i, j, kCaseSeed);
      }
    }
  }
}

// Of a weight packed for linear_gate_mul(), linear() gives the sums of the other layout, bit for
// bit.
TEST_P(QuantLinear, LinearOfGateAndUp) {
  const auto backend = make_backend(isa());
  Random random(22);
  SCOPED_TRACE(random.trace());
  const Problem p = random_problem(random, {94, 301});
  const std::vector<float> x = random.uniforms(7 * p.k);
  const auto want = run(*backend, p, format(), WeightUse::kLinear, x);
  const StoredMatrix stored(p.weight, p.n, p.k, DType::kF32);
  const auto weight = pack(*backend, stored, WeightUse::kGateUp, format());
  const Matrix input(*backend, 7, p.k, x), bias(*backend, 1, p.n, p.bias), out(*backend, 7, p.n);
  backend->linear(input.view(), *weight, bias.vector(), out.view());
  EXPECT_EQ(out.values(), want);
}

/// Whole numbers that quantization keeps: each group of a row has its top in front, so that the
/// step (127 / 127) or the scale (-8 / -8) is 1.
std::vector<float> exact_numbers(Random& random, int64_t rows, int64_t k, int64_t size, float top) {
  const auto most = static_cast<int64_t>(std::abs(top)) - 1;
  std::vector<float> out = random.integers(rows * k, -most, most);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < k; first += size) out[size_t(row * k + first)] = top;
  }
  return out;
}

// With a scale and a step of 1 all sums are whole numbers below 2^24: any misplaced code shows.
TEST_P(QuantLinear, WholeNumbersAreExact) {
  const auto backend = make_backend(isa());
  Random random(23);
  SCOPED_TRACE(random.trace());
  const int64_t size = format().group_size;
  const float top = format().bits == 8 ? 127.0f : -8.0f;
  for (const Shape shape : kShapes) {
    const int64_t n = shape.n, k = shape.k;
    const Problem p{n, k, exact_numbers(random, n, k, size, top), random.integers(n, -99, 99)};
    const std::vector<float> x = exact_numbers(random, kMostRows, k, size, 127.0f);
    std::vector<float> want(size_t(kMostRows * n));
    for (int64_t i = 0; i < kMostRows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = p.bias[size_t(j)];
        for (int64_t l = 0; l < k; ++l) {
          sum += double{x[size_t(i * k + l)]} * p.weight[size_t(j * k + l)];
        }
        want[size_t(i * n + j)] = static_cast<float>(sum);
      }
    }
    for (const int64_t rows : kRows) {
      const auto got = run(*backend, p, format(), WeightUse::kLinear, first_rows(x, rows, k));
      ASSERT_EQ(got, first_rows(want, rows, n)) << rows << " x " << k << " -> " << n;
    }
  }
}

// The guarantee behind "same tokens every time": a row's bits depend on the row alone.
TEST_P(QuantLinear, RowsDoNotDependOnTheirCompany) {
  Random random(24);
  SCOPED_TRACE(random.trace());
  const auto alone = make_backend(isa(), 1);
  int32_t turn = 0;
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
    for (const Shape shape : {Shape{130, 65}, Shape{94, 301}, Shape{200, 1030}}) {
      ++turn;
      const Problem p = random_problem(random, shape);
      const int64_t outputs = use == WeightUse::kGateUp ? p.n / 2 : p.n;
      const std::vector<float> row = random.uniforms(p.k);
      const std::vector<float> want = run(*alone, p, format(), use, row);
      for (const int32_t threads : {1, 2, 3}) {
        if (!every_case() && threads != turn % 3 + 1) continue;
        const auto backend = make_backend(isa(), threads);
        for (int64_t rows = 1; rows <= kMostRows; rows += rows < 16 ? 1 : 9) {
          const int64_t place = random.integer(0, rows - 1);
          std::vector<float> x = random.uniforms(rows * p.k, -50.0f, 50.0f);
          std::copy(row.begin(), row.end(), x.begin() + place * p.k);
          const auto got = run(*backend, p, format(), use, x);
          ASSERT_EQ(0, std::memcmp(got.data() + place * outputs, want.data(),
                                   want.size() * sizeof(float)))
              << "row " << place << " of " << rows << ", " << threads << " threads, " << p.k
              << " -> " << p.n;
        }
      }
    }
  }
}

// More rows than one block of packed activations holds.
TEST_P(QuantLinear, RowsDoNotDependOnBlocksOfRows) {
  if (!every_case() && format().group_size != 64) GTEST_SKIP() << "groups of 64 show it";
  Random random(25);
  SCOPED_TRACE(random.trace());
  const auto backend = make_backend(isa(), 2);
  const Problem p = random_problem(random, {70, 23001});
  const std::vector<float> x = random.uniforms(50 * p.k);
  const auto together = run(*backend, p, format(), WeightUse::kLinear, x);
  for (const int64_t place : {0, 23, 24, 47, 49}) {
    const std::vector<float> row(x.begin() + place * p.k, x.begin() + (place + 1) * p.k);
    const auto alone = run(*backend, p, format(), WeightUse::kLinear, row);
    ASSERT_EQ(
        0, std::memcmp(together.data() + place * p.n, alone.data(), alone.size() * sizeof(float)))
        << "row " << place;
  }
}

TEST_P(QuantLinear, WritesNothingBeyondItsColumns) {
  const auto backend = make_backend(isa());
  Random random(26);
  SCOPED_TRACE(random.trace());
  Problem p = random_problem(random, {66, 33});
  p.bias.clear();
  const StoredMatrix stored(p.weight, p.n, p.k, DType::kF32);
  const auto weight = pack(*backend, stored, WeightUse::kLinear, format());
  const int64_t rows = 7, wide_in = p.k + 5, wide_out = p.n + 3;
  const std::vector<float> x = random.uniforms(rows * wide_in);
  const Matrix input(*backend, rows, wide_in, x);
  const Matrix out(*backend, rows, wide_out, std::vector<float>(size_t(rows * wide_out), 42.0f));
  backend->linear(input.view().columns(2, p.k), *weight, {}, out.view().columns(1, p.n));
  std::vector<float> narrow;
  for (int64_t i = 0; i < rows; ++i) {
    const auto first = x.begin() + i * wide_in + 2;
    narrow.insert(narrow.end(), first, first + p.k);
  }
  const auto want = run(*backend, p, format(), WeightUse::kLinear, narrow);
  const auto got = out.values();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < wide_out; ++j) {
      const bool inside = j >= 1 && j <= p.n;
      ASSERT_EQ(got[size_t(i * wide_out + j)], inside ? want[size_t(i * p.n + j - 1)] : 42.0f);
    }
  }
}

// A row that isn't finite says so everywhere, and no other row notices. Numbers too small to be
// rounded are nothing.
TEST_P(QuantLinear, RowsThatAreNotNumbers) {
  const auto backend = make_backend(isa());
  Random random(27);
  SCOPED_TRACE(random.trace());
  const Problem p = random_problem(random, {66, 301});
  const std::vector<float> x = random.uniforms(8 * p.k);
  const auto want = run(*backend, p, format(), WeightUse::kLinear, x);
  std::vector<float> bad = x;
  bad[size_t(1 * p.k + 77)] = std::numeric_limits<float>::quiet_NaN();
  bad[size_t(3 * p.k + 300)] = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < p.k; ++i) bad[size_t(5 * p.k + i)] = i % 2 == 0 ? 1e-39f : -1e-31f;
  const auto got = run(*backend, p, format(), WeightUse::kLinear, bad);
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const float value = got[size_t(i * p.n + j)];
      if (i == 1 || i == 3) {
        ASSERT_TRUE(std::isnan(value)) << i << " " << j;
      } else {
        ASSERT_EQ(value, i == 5 ? p.bias[size_t(j)] : want[size_t(i * p.n + j)]) << i << " " << j;
      }
    }
  }
}

TEST_P(QuantLinear, EverySourceGivesTheSameWeights) {
  const auto backend = make_backend(isa(), 3);
  Random random(28);
  SCOPED_TRACE(random.trace());
  const int64_t n = 71, k = 263;
  // Whole numbers below 2^8 are exact in every dtype.
  const Problem p{n, k, random.integers(n * k, -255, 255), {}};
  const std::vector<float> x = random.uniforms(3 * k);
  const auto want = run(*backend, p, format(), WeightUse::kLinear, x);
  for (const DType source : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const bool transposed : {false, true}) {
      const StoredMatrix stored(p.weight, n, k, source, transposed, 3);
      const auto weight = pack(*backend, stored, WeightUse::kTiedEmbedding, format());
      const Matrix input(*backend, 3, k, x), out(*backend, 3, n);
      backend->linear(input.view(), *weight, {}, out.view());
      ASSERT_EQ(out.values(), want) << dtype_name(source) << " transposed " << transposed;
    }
  }
}

// embed() reads the weights that linear() multiplies by.
TEST_P(QuantLinear, EmbeddingsAreTheReferences) {
  Random random(29);
  SCOPED_TRACE(random.trace());
  const int64_t n = 71, k = 263;
  const StoredMatrix stored(random.uniforms(n * k), n, k, DType::kBF16);
  const std::vector<int32_t> ids = {70, 0, 63, 64, 15, 16, 70};
  const std::vector<int32_t> positions(ids.size(), 0);
  const SeqSlice seq{0, int32_t(ids.size()), 0, {}};
  std::vector<std::vector<float>> rows;
  for (const std::string& name : {isa(), std::string("reference")}) {
    const auto backend = make_backend(name);
    const auto table = pack(*backend, stored, WeightUse::kTiedEmbedding, format());
    backend->begin_step({ids, positions, positions, {&seq, 1}, {}});
    const Matrix out(*backend, int64_t(ids.size()), k);
    backend->embed(*table, out.view());
    rows.push_back(out.values());
  }
  EXPECT_EQ(rows[0], rows[1]);
}

// Packed bytes work again, also in a backend with another kernel set of the same layout.
TEST_P(QuantLinear, RestoresWhatWasPacked) {
  Random random(30);
  SCOPED_TRACE(random.trace());
  const auto backend = make_backend(isa());
  const int64_t n = 130, k = 301;
  const StoredMatrix stored(random.uniforms(n * k), n, k, DType::kBF16);
  const auto packed = pack(*backend, stored, WeightUse::kLinear, format());
  const WeightShape shape{n, k, DType::kBF16, WeightUse::kLinear, format()};
  ASSERT_EQ(packed->bytes(), backend->packed_bytes(shape));
  const std::string layout = backend->weight_layout(DType::kBF16, format());
  EXPECT_NE(layout, backend->weight_layout(DType::kBF16));
  const std::vector<float> x = random.uniforms(3 * k);
  const auto multiply = [&](Backend& with, const PackedWeight& weight) {
    const Matrix input(with, 3, k, x), out(with, 3, n);
    with.linear(input.view(), weight, {}, out.view());
    return out.values();
  };
  const auto want = multiply(*backend, *packed);
  for (const std::string& name : {isa(), std::string("avx512")}) {
    if (!isa_available(name)) continue;
    const auto other = make_backend(name);
    if (other->weight_layout(DType::kBF16, format()) != layout) continue;
    Backend::Buffer copy = other->allocate(packed->bytes());
    other->upload(packed->data(), copy.data, packed->bytes());
    const auto restored = other->restore_weight(shape, std::move(copy));
    EXPECT_EQ(multiply(*other, *restored), want) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantLinear,
                         testing::Combine(testing::Values("baseline", "avx2", "avx2_vnni", "avx512",
                                                          "avx512_vnni"),
                                          testing::ValuesIn(kFormats)),
                         param_name);

}  // namespace
}  // namespace headrace::parity
