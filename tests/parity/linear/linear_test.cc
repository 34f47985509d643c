// linear and linear_gate_mul: every kernel set against the reference, and against itself in other
// company.

#include <cmath>
#include <cstring>
#include <map>

#include "parity/linear/linear_harness.h"

namespace headrace::parity {
namespace {

// Nothing here divides by a panel, a tile or a pair of k; the larger ones span several of each.
constexpr Shape kShapes[] = {{1, 1},   {2, 1},    {6, 2},    {10, 7},    {66, 33},
                             {64, 64}, {130, 65}, {94, 301}, {200, 1030}};
constexpr uint64_t kCaseSeed = 1;

using Param = std::tuple<std::string, DType>;

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param) + "_" + dtype_name(std::get<1>(info.param));
}

/// x [rows, k] through a weight kept as `storage`; empty bias: none.
std::vector<float> run(Backend& backend, const Problem& p, DType storage, WeightUse use,
                       const std::vector<float>& x) {
  const StoredMatrix stored(p.weight, p.n, p.k, storage);
  const auto weight = backend.pack_weight({{stored.part()}, storage, use});
  return multiply(backend, p, *weight, use, x);
}

/// A problem with the reference's answers for the most rows: those of fewer are their first.
struct Case {
  Problem p;
  std::vector<float> x;
  std::vector<float> sums;       ///< [rows][n]
  std::vector<float> gate_mul;   ///< [rows][n / 2]; empty for odd n
  std::vector<float> magnitude;  ///< [rows][n] sum |x||w| + |bias|
};

std::vector<float> absolute(std::vector<float> values) {
  for (float& x : values) x = std::abs(x);
  return values;
}

/// The same for every ISA, so that the reference computes them once.
const std::vector<Case>& cases(DType storage) {
  static std::map<DType, std::vector<Case>> made;
  std::vector<Case>& out = made[storage];
  if (!out.empty()) return out;
  Random random(kCaseSeed);
  const auto reference = make_cpu_backend({.isa = "reference"});
  for (const Shape shape : kShapes) {
    for (const bool with_bias : {true, false}) {
      Case c{random_problem(random, shape), random.uniforms(kMostRows * shape.k), {}, {}, {}};
      if (!with_bias) c.p.bias.clear();
      c.sums = run(*reference, c.p, storage, WeightUse::kLinear, c.x);
      if (shape.n % 2 == 0) {
        c.gate_mul = run(*reference, c.p, storage, WeightUse::kGateUp, c.x);
      }
      const Problem positive{shape.n, shape.k, absolute(c.p.weight), absolute(c.p.bias)};
      c.magnitude = run(*reference, positive, DType::kF32, WeightUse::kLinear, absolute(c.x));
      // A stored weight is at most 1 + 2^-8 times what it was made of.
      for (float& m : c.magnitude) m *= 1.0f + 0x1.1p-8f;
      out.push_back(std::move(c));
    }
  }
  return out;
}

class LinearParity : public testing::TestWithParam<Param> {
 protected:
  std::string isa() const { return std::get<0>(GetParam()); }
  DType storage() const { return std::get<1>(GetParam()); }
  bool rounds_activations() const { return isa() == "avx512_bf16" && storage() == DType::kBF16; }

  /// Bound on the error of sum_k x[k] w[k] + bias given A = sum |x||w| + |bias|. A sum of K rounded
  /// products in any fixed order is off by at most gamma_{K+1} A with gamma_m = m u / (1 - m u)
  /// (Higham, Accuracy and Stability, 3.1; K + 1 for kernels that round products too, one more for
  /// the bias, one for the reference's own rounding to float32). Activations rounded to bf16 are
  /// each off by 2^-8 |x|, which adds 2^-8 A. The bf16 instruction also flushes subnormals: 2^-126
  /// for each of K terms.
  double bound(const Case& c, size_t at) const {
    const double m = static_cast<double>(c.p.k + 3) * kF32Roundoff;
    const double activations = rounds_activations() ? kBF16Roundoff : 0.0;
    return static_cast<double>(c.magnitude[at]) * (m / (1.0 - m) + activations * (1.0 + m)) +
           static_cast<double>(c.p.k) * 0x1p-126;
  }
};

TEST_P(LinearParity, MatchesReference) {
  HEADRACE_REQUIRE_ISA(isa());
  const auto backend = make_backend(isa());
  for (const Case& c : cases(storage())) {
    for (const int64_t rows : kRows) {
      const auto got =
          run(*backend, c.p, storage(), WeightUse::kLinear, first_rows(c.x, rows, c.p.k));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < c.p.n; ++j) {
          const auto at = size_t(i * c.p.n + j);
          ASSERT_NEAR(got[at], c.sums[at], bound(c, at)) << place(c.p, rows, i, j, kCaseSeed);
        }
      }
    }
  }
}

TEST_P(LinearParity, GateMulMatchesReference) {
  HEADRACE_REQUIRE_ISA(isa());
  const auto backend = make_backend(isa());
  for (const Case& c : cases(storage())) {
    if (c.p.n % 2 != 0) continue;
    const int64_t half = c.p.n / 2;
    for (const int64_t rows : kRows) {
      const auto got =
          run(*backend, c.p, storage(), WeightUse::kGateUp, first_rows(c.x, rows, c.p.k));
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < half; ++j) {
          const auto gate_at = size_t(i * c.p.n + j), up_at = gate_at + size_t(half);
          const double tolerance = gate_mul_bound({c.sums[gate_at], bound(c, gate_at)},
                                                  {c.sums[up_at], bound(c, up_at)});
          const auto at = size_t(i * half + j);
          ASSERT_NEAR(got[at], c.gate_mul[at], tolerance) << place(c.p, rows, i, j, kCaseSeed);
        }
      }
    }
  }
}

// Small whole numbers are exact in every storage dtype and every order of summation, so that any
// misplaced element shows however large the sum.
TEST_P(LinearParity, WholeNumbersAreExact) {
  HEADRACE_REQUIRE_ISA(isa());
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(isa());
  Random random(3);
  SCOPED_TRACE(random.trace());
  for (const Shape shape : kShapes) {
    const Problem p{shape.n, shape.k, random.integers(shape.n * shape.k, -9, 9),
                    random.integers(shape.n, -99, 99)};
    const std::vector<float> x = random.integers(kMostRows * p.k, -9, 9);
    const auto want = run(*reference, p, storage(), WeightUse::kLinear, x);
    for (const int64_t rows : kRows) {
      const auto got = run(*backend, p, storage(), WeightUse::kLinear, first_rows(x, rows, p.k));
      ASSERT_EQ(got, first_rows(want, rows, p.n)) << rows << " x " << p.k << " -> " << p.n;
    }
  }
}

TEST_P(LinearParity, AddRmsNormHasTheBitsOfItsOps) {
  HEADRACE_REQUIRE_ISA(isa());
  const auto backend = make_backend(isa());
  Random random(4);
  SCOPED_TRACE(random.trace());
  for (const Shape shape : {Shape{66, 33}, Shape{130, 65}}) {
    const Problem p = random_problem(random, shape);
    const StoredMatrix stored(p.weight, p.n, p.k, storage());
    const auto weight = backend->pack_weight({{stored.part()}, storage(), WeightUse::kLinear});
    const Matrix bias(*backend, 1, p.n, p.bias), norm(*backend, 1, p.n, random.uniforms(p.n));
    for (const int64_t rows : kRows) {
      const std::vector<float> start = random.uniforms(rows * p.n);
      const Matrix x(*backend, rows, p.k, random.uniforms(rows * p.k));
      const Matrix residual(*backend, rows, p.n, start), expected(*backend, rows, p.n, start);
      const Matrix delta(*backend, rows, p.n), out(*backend, rows, p.n);
      backend->linear(x.view(), *weight, bias.vector(), delta.view());
      backend->add_rms_norm(expected.view(), delta.view(), norm.vector(), 1e-5f, delta.view());
      backend->linear_add_rms_norm({x.view(), *weight, bias.vector(), out.view(), residual.view(),
                                    norm.vector(), 1e-5f, out.view()});
      ASSERT_EQ(residual.values(), expected.values()) << rows;
      ASSERT_EQ(out.values(), delta.values()) << rows;
    }
  }
}

// The guarantee behind "same tokens every time": a row's bits depend on the row alone.
TEST_P(LinearParity, RowsDoNotDependOnTheirCompany) {
  HEADRACE_REQUIRE_ISA(isa());
  Random random(4);
  SCOPED_TRACE(random.trace());
  const auto alone = make_backend(isa(), 1);
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
    for (const Shape shape : {Shape{130, 65}, Shape{94, 301}, Shape{200, 1030}}) {
      const Problem p = random_problem(random, shape);
      const int64_t outputs = use == WeightUse::kGateUp ? p.n / 2 : p.n;
      const std::vector<float> row = random.uniforms(p.k);
      const std::vector<float> want = run(*alone, p, storage(), use, row);
      for (const int32_t threads : {1, 2, 3}) {
        const auto backend = make_backend(isa(), threads);
        for (const int64_t rows : kRows) {
          const int64_t place = random.integer(0, rows - 1);
          std::vector<float> x = random.uniforms(rows * p.k);
          std::copy(row.begin(), row.end(), x.begin() + place * p.k);
          const auto got = run(*backend, p, storage(), use, x);
          ASSERT_EQ(0, std::memcmp(got.data() + place * outputs, want.data(),
                                   want.size() * sizeof(float)))
              << "row " << place << " of " << rows << ", " << threads << " threads, " << p.k
              << " -> " << p.n;
        }
      }
    }
  }
}

// More rows than one block of packed activations holds (blocks are at least four tiles, and no
// more than 384 KiB when rows are long).
TEST_P(LinearParity, RowsDoNotDependOnBlocksOfRows) {
  HEADRACE_REQUIRE_ISA(isa());
  Random random(5);
  SCOPED_TRACE(random.trace());
  const auto backend = make_backend(isa(), 2);
  const Problem p = random_problem(random, {70, 6001});
  const std::vector<float> x = random.uniforms(50 * p.k);
  const auto together = run(*backend, p, storage(), WeightUse::kLinear, x);
  for (const int64_t place : {0, 23, 24, 47, 49}) {
    const std::vector<float> row(x.begin() + place * p.k, x.begin() + (place + 1) * p.k);
    const auto alone = run(*backend, p, storage(), WeightUse::kLinear, row);
    ASSERT_EQ(
        0, std::memcmp(together.data() + place * p.n, alone.data(), alone.size() * sizeof(float)))
        << "row " << place;
  }
}

TEST_P(LinearParity, WritesNothingBeyondItsColumns) {
  HEADRACE_REQUIRE_ISA(isa());
  const auto backend = make_backend(isa());
  Random random(6);
  SCOPED_TRACE(random.trace());
  const Problem p = random_problem(random, {66, 33});
  const StoredMatrix stored(p.weight, p.n, p.k, storage());
  const auto weight = backend->pack_weight({{stored.part()}, storage(), WeightUse::kLinear});
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
  Problem no_bias = p;
  no_bias.bias.clear();
  const auto want = run(*backend, no_bias, storage(), WeightUse::kLinear, narrow);
  const auto got = out.values();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < wide_out; ++j) {
      const bool inside = j >= 1 && j <= p.n;
      ASSERT_EQ(got[size_t(i * wide_out + j)], inside ? want[size_t(i * p.n + j - 1)] : 42.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LinearParity,
                         testing::Combine(testing::ValuesIn(kernel_isas()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         param_name);

}  // namespace
}  // namespace headrace::parity
