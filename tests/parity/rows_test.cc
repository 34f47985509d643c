// rms_norm, add_rms_norm, rope_table, gather_rows, add and add_gated against the reference, and
// against themselves in other company.

#include <cmath>
#include <cstring>

#include "parity/parity.h"

namespace headrace::parity {
namespace {

constexpr int64_t kWidths[] = {1, 3, 16, 63, 65, 300, 1030};
constexpr int64_t kRows[] = {1, 2, 7, 40};

class RowsParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

// mean(x^2) is a sum of H positive terms: relative error gamma_{H+2}, halved by the square root;
// the root, the quotients and the two products add at most 5 roundoffs, the reference's own
// rounding one more.
double norm_bound(int64_t width) { return (0.5 * double(width + 2) + 6.0) * kF32Roundoff; }

std::vector<float> run_norm(Backend& backend, int64_t rows, const std::vector<float>& x,
                            const std::vector<float>& weight, bool in_place = false) {
  const auto width = static_cast<int64_t>(weight.size());
  const Matrix input(backend, rows, width, x), scale(backend, 1, width, weight);
  const Matrix out(backend, rows, width);
  backend.rms_norm(input.view(), scale.vector(), 1e-5f, in_place ? input.view() : out.view());
  return in_place ? input.values() : out.values();
}

struct AddNorm {
  std::vector<float> residual, out;
};

AddNorm run_add_norm(Backend& backend, int64_t rows, const std::vector<float>& residual,
                     const std::vector<float>& delta, const std::vector<float>& weight,
                     bool in_place = false) {
  const auto width = static_cast<int64_t>(weight.size());
  const Matrix sum(backend, rows, width, residual), add(backend, rows, width, delta);
  const Matrix scale(backend, 1, width, weight), out(backend, rows, width);
  const Matrix& target = in_place ? add : out;
  backend.add_rms_norm(sum.view(), add.view(), scale.vector(), 1e-5f, target.view());
  return {sum.values(), target.values()};
}

TEST_P(RowsParity, RmsNormMatchesReference) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(GetParam());
  Random random(21);
  SCOPED_TRACE(random.trace());
  for (const int64_t width : kWidths) {
    for (const int64_t rows : kRows) {
      const auto x = random.uniforms(rows * width, -3.0f, 3.0f);
      const auto weight = random.uniforms(width, 0.1f, 2.0f);
      const auto want = run_norm(*reference, rows, x, weight);
      const auto got = run_norm(*backend, rows, x, weight);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * norm_bound(width)) << width;
      }
      EXPECT_EQ(run_norm(*backend, rows, x, weight, true), got);
    }
  }
}

TEST_P(RowsParity, AddRmsNormIsTheSumThenTheNorm) {
  const auto backend = make_backend(GetParam());
  Random random(22);
  SCOPED_TRACE(random.trace());
  for (const int64_t width : kWidths) {
    for (const int64_t rows : kRows) {
      const auto residual = random.uniforms(rows * width);
      const auto delta = random.uniforms(rows * width);
      const auto weight = random.uniforms(width, 0.1f, 2.0f);
      std::vector<float> sum = residual;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += delta[i];
      const auto got = run_add_norm(*backend, rows, residual, delta, weight);
      ASSERT_EQ(got.residual, sum) << width;
      ASSERT_EQ(got.out, run_norm(*backend, rows, sum, weight)) << width;
      ASSERT_EQ(run_add_norm(*backend, rows, residual, delta, weight, true).out, got.out);
    }
  }
}

TEST_P(RowsParity, RowsDoNotDependOnTheirCompany) {
  Random random(23);
  SCOPED_TRACE(random.trace());
  const auto alone = make_backend(GetParam(), GetParam() == "reference" ? 0 : 1);
  for (const int64_t width : kWidths) {
    const auto row = random.uniforms(width);
    const auto weight = random.uniforms(width, 0.1f, 2.0f);
    const auto want = run_norm(*alone, 1, row, weight);
    for (const int32_t threads : {1, 2, 3}) {
      const auto backend = make_backend(GetParam(), threads);
      for (const int64_t rows : kRows) {
        const int64_t place = random.integer(0, rows - 1);
        auto x = random.uniforms(rows * width);
        std::copy(row.begin(), row.end(), x.begin() + place * width);
        const auto got = run_norm(*backend, rows, x, weight);
        ASSERT_EQ(0, std::memcmp(got.data() + place * width, want.data(), size_t(width) * 4));
      }
    }
  }
}

/// One sequence at these positions; rope_lens as given.
std::vector<float> run_rope(Backend& backend, const RopeSpec& spec,
                            const std::vector<int32_t>& positions,
                            const std::vector<int32_t>& rope_lens) {
  const std::vector<int32_t> ids(positions.size(), 0);
  const SeqSlice seq{0, static_cast<int32_t>(ids.size()), 0, {}};
  backend.begin_step({ids, positions, rope_lens, {&seq, 1}, {}});
  const Matrix out(backend, static_cast<int64_t>(ids.size()), spec.rotary_dim);
  backend.rope_table(spec, out.view());
  return out.values();
}

RopeSpec rope_spec(int32_t rotary_dim, double base) {
  RopeSpec spec;
  spec.rotary_dim = rotary_dim;
  for (int32_t i = 0; i < rotary_dim / 2; ++i) {
    spec.inv_freq.push_back(static_cast<float>(std::pow(base, -2.0 * i / rotary_dim)));
  }
  return spec;
}

TEST_P(RowsParity, RopeAnglesAreFloat32Products) {
  const auto backend = make_backend(GetParam());
  RopeSpec spec = rope_spec(64, 500000.0);
  spec.attention_factor = 1.25f;
  const std::vector<int32_t> positions = {0, 1, 77, 4095, 131071, 1000003};
  const auto got = run_rope(*backend, spec, positions, positions);
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(positions[row]) * spec.inv_freq[i];
      const double cosine = 1.25 * std::cos(static_cast<double>(angle));
      const double sine = 1.25 * std::sin(static_cast<double>(angle));
      ASSERT_NEAR(got[row * 64 + i], cosine, 3 * kF32Roundoff);
      ASSERT_NEAR(got[row * 64 + 32 + i], sine, 3 * kF32Roundoff);
    }
  }
}

TEST_P(RowsParity, DynamicRopeFollowsEachRowsLength) {
  const auto backend = make_backend(GetParam());
  RopeSpec spec = rope_spec(32, 10000.0);
  spec.dynamic_original_max = 64;
  spec.dynamic_base = 10000.0;
  spec.dynamic_factor = 2.0;
  const std::vector<int32_t> positions = {5, 5, 5, 100};
  const std::vector<int32_t> lens = {64, 65, 130, 130};
  const auto got = run_rope(*backend, spec, positions, lens);
  for (size_t row = 0; row < positions.size(); ++row) {
    const double stretch = lens[row] <= 64 ? 1.0 : 2.0 * lens[row] / 64.0 - 1.0;
    const double base = 10000.0 * std::pow(stretch, 32.0 / 30.0);
    for (size_t i = 0; i < 16; ++i) {
      const double angle = positions[row] * std::pow(base, -2.0 * double(i) / 32.0);
      // The frequency and the angle are rounded to float32: two roundoffs of the angle.
      const double tolerance = (2.0 * angle + 2.0) * kF32Roundoff;
      ASSERT_NEAR(got[row * 32 + i], std::cos(angle), tolerance) << row << " " << i;
      ASSERT_NEAR(got[row * 32 + 16 + i], std::sin(angle), tolerance) << row << " " << i;
    }
  }
  EXPECT_EQ(run_rope(*backend, spec, {5}, {130}),
            std::vector<float>(got.begin() + 64, got.begin() + 96));
}

TEST_P(RowsParity, LongRowsHaveTheirOwnFrequencies) {
  const auto backend = make_backend(GetParam());
  RopeSpec spec = rope_spec(32, 10000.0), other = rope_spec(32, 500.0);
  const std::vector<int32_t> positions = {5, 5, 100};
  const auto near = run_rope(*backend, spec, positions, positions);
  const auto far = run_rope(*backend, other, positions, positions);
  spec.dynamic_original_max = 64;
  spec.long_inv_freq = other.inv_freq;
  const auto got = run_rope(*backend, spec, positions, {64, 65, 130});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i < 32 ? near[i] : far[i]) << i;
}

TEST_P(RowsParity, AddsRows) {
  const auto backend = make_backend(GetParam());
  Random random(25);
  SCOPED_TRACE(random.trace());
  for (const int64_t width : kWidths) {
    const auto x = random.uniforms(7 * width), start = random.uniforms(7 * width);
    const Matrix delta(*backend, 7, width, x), out(*backend, 7, width, start);
    backend->add(delta.view(), out.view());
    const auto got = out.values();
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], start[i] + x[i]) << width;
  }
  const Matrix wide(*backend, 2, 5), narrow(*backend, 2, 4);
  EXPECT_THROW(backend->add(wide.view(), narrow.view()), InternalError);
}

/// x [rows][hidden], delta and start [rows][width].
std::vector<float> run_gated(Backend& backend, int64_t rows, const std::vector<float>& x,
                             const std::vector<float>& gate, const std::vector<float>& delta,
                             const std::vector<float>& start) {
  const auto width = static_cast<int64_t>(delta.size()) / rows;
  const auto hidden = static_cast<int64_t>(gate.size());
  const Matrix input(backend, rows, hidden, x), gates(backend, 1, hidden, gate);
  const Matrix added(backend, rows, width, delta), out(backend, rows, width, start);
  backend.add_gated(input.view(), gates.vector(), added.view(), out.view());
  return out.values();
}

// The sum of H products is off by d, gamma_H of the sum of their magnitudes; a sigmoid changes by
// no more than d / 4, and its exponential (2 ulp), sum and quotient add 8 roundoffs at most; then
// one product and one sum.
TEST_P(RowsParity, AddsGatedRows) {
  const auto backend = make_backend(GetParam());
  Random random(26);
  SCOPED_TRACE(random.trace());
  const int64_t rows = 9, width = 37;
  for (const int64_t hidden : kWidths) {
    const auto x = random.uniforms(rows * hidden), gate = random.uniforms(hidden, -0.5f, 0.5f);
    const auto delta = random.uniforms(rows * width), start = random.uniforms(rows * width);
    const auto got = run_gated(*backend, rows, x, gate, delta, start);
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0.0, magnitude = 0.0;
      for (int64_t j = 0; j < hidden; ++j) {
        const double product = double{x[size_t(i * hidden + j)]} * double{gate[size_t(j)]};
        sum += product;
        magnitude += std::abs(product);
      }
      const double d = double(hidden + 2) * kF32Roundoff * magnitude;
      const double sigmoid = 1.0 / (1.0 + std::exp(-sum));
      for (int64_t j = 0; j < width; ++j) {
        const auto at = size_t(i * width + j);
        const double want = double{start[at]} + sigmoid * double{delta[at]};
        const double bound = (0.25 * d + 10.0 * kF32Roundoff) * std::abs(double{delta[at]}) +
                             2.0 * kF32Roundoff * std::abs(want);
        ASSERT_NEAR(got[at], want, bound) << "row " << i << " of " << hidden;
      }
      // In other company, the same bits.
      const auto row = [i](const std::vector<float>& all, int64_t cols) {
        return std::vector<float>(all.begin() + i * cols, all.begin() + (i + 1) * cols);
      };
      ASSERT_EQ(run_gated(*backend, 1, row(x, hidden), gate, row(delta, width), row(start, width)),
                row(got, width));
    }
  }
}

TEST_P(RowsParity, GathersRows) {
  const auto backend = make_backend(GetParam());
  Random random(24);
  SCOPED_TRACE(random.trace());
  const auto values = random.uniforms(50 * 33);
  const Matrix x(*backend, 50, 33, values), out(*backend, 4, 33);
  const std::vector<int32_t> rows = {49, 0, 7, 7};
  backend->gather_rows(x.view(), rows, out.view());
  const auto got = out.values();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < 33; ++j) {
      ASSERT_EQ(got[i * 33 + j], values[size_t(rows[i]) * 33 + j]);
    }
  }
  const std::vector<int32_t> beyond = {50};
  const Matrix one(*backend, 1, 33);
  EXPECT_THROW(backend->gather_rows(x.view(), beyond, one.view()), InternalError);
}

TEST_P(RowsParity, RefusesTokensBeyondTheTable) {
  const auto backend = make_backend(GetParam());
  const std::vector<float> values(3 * 4, 1.0f);
  const auto table = backend->pack_weight(
      {{{values.data(), DType::kF32, 3, 4, false, 4}}, DType::kF32, WeightUse::kEmbedding});
  const std::vector<int32_t> zero = {0};
  const SeqSlice seq{0, 1, 0, {}};
  const Matrix out(*backend, 1, 4);
  for (const int32_t id : {-1, 3}) {
    const std::vector<int32_t> ids = {id};
    backend->begin_step({ids, zero, zero, {&seq, 1}, {}});
    EXPECT_THROW(backend->embed(*table, out.view()), InternalError);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RowsParity,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
