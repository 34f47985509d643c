// gate_mul with each kind of gate against formulas in double, and at the ends of what numbers can
// be.

#include "parity/gates.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "parity/parity.h"

namespace headrace::parity {
namespace {

constexpr GateSpec kGptOss{.limit = 7.0f, .alpha = 1.702f};

class Gates : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HEADRACE_REQUIRE_ISA(GetParam());
    backend_ = make_backend(GetParam());
  }
  /// One row.
  std::vector<float> run(const GateSpec& spec, const std::vector<float>& gate,
                         const std::vector<float>& up) {
    std::vector<float> both = gate;
    both.insert(both.end(), up.begin(), up.end());
    const auto n = static_cast<int64_t>(gate.size());
    const Matrix in(*backend_, 1, 2 * n, both), out(*backend_, 1, n);
    backend_->gate_mul(in.view(), spec, out.view());
    return out.values();
  }

  std::unique_ptr<Backend> backend_;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double exact(const GateSpec& spec, double g, double u) {
  if (spec.limit > 0.0f) {
    const double c = std::min(g, double{spec.limit});
    const double clamped = std::clamp(u, -double{spec.limit}, double{spec.limit});
    return (clamped + 1.0) * c * sigmoid(double{spec.alpha} * c);
  }
  if (spec.activation == Activation::kGeluErf) {
    return 0.5 * g * std::erfc(-g / std::numbers::sqrt2) * u;
  }
  if (spec.activation == Activation::kGeluTanh) {
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
    return 0.5 * g * (1.0 + std::tanh(inner)) * u;
  }
  const double c = double{spec.factor} * g;
  return c * sigmoid(c) * u;
}

// An activation is off as activate() is (vision_rows_test.cc): by 8 roundoffs of itself and by 2 of
// |g|, of GELU by erf by 5 of |g|. The clamped gate's argument takes one product, and so does that
// with a factor: as quick GELU.
// Then a sum (of the clamped gate: its own roundoff is of |u| + 1) and a product.
TEST_P(Gates, MatchTheirFormulas) {
  std::vector<float> gate, up;
  for (float v = -12.0f; v <= 12.0f; v += 0.0173f) gate.push_back(v);
  for (float v = 1e-30f; v < 1e4f; v *= 3.1f) gate.insert(gate.end(), {v, -v});
  for (size_t i = 0; i < gate.size(); ++i) up.push_back(float(int(i * 7 % 41) - 20) * 0.45f);
  for (const GateSpec& spec : {kGates[0], kGates[1], kGates[2], kGates[3], kGates[4], kGptOss}) {
    const auto got = run(spec, gate, up);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i], u = up[i], want = exact(spec, g, u);
      const double c = spec.limit > 0.0f ? std::min(g, double{spec.limit}) : spec.factor * g;
      const double through = spec.limit > 0.0f ? std::abs(u) + 1.0 : std::abs(u);
      const double bound =
          (5.0 * std::abs(c) * through + 11.0 * std::abs(want)) * kF32Roundoff + 1e-34 * through;
      ASSERT_NEAR(got[i], want, bound) << g << ", " << u << ", limit " << spec.limit;
    }
  }
}

TEST_P(Gates, AtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const GateSpec& spec : {kGates[0], kGates[1], kGates[2], kGptOss}) {
    const auto got = run(spec, {0.0f, nan, 1.0f, -1e4f}, {3.0f, 1.0f, nan, 2.0f});
    EXPECT_EQ(got[0], 0.0f);
    EXPECT_TRUE(std::isnan(got[1])) << int(spec.activation);
    EXPECT_TRUE(std::isnan(got[2])) << int(spec.activation);
    EXPECT_EQ(got[3], 0.0f) << int(spec.activation);
  }
  // Clamped: gate from above, up on both sides.
  const auto got = run(kGptOss, {inf, 9.0f, 7.0f, 7.0f}, {inf, 7.0f, -inf, -9.0f});
  EXPECT_EQ(got[0], got[1]);
  EXPECT_NEAR(got[0], 56.0f, 1e-3f);
  EXPECT_EQ(got[2], got[3]);
  EXPECT_NEAR(got[2], -42.0f, 1e-3f);
}

// Rows of every width, with the bits that each number has alone.
TEST_P(Gates, DoNotDependOnTheirPlace) {
  Random random(94);
  SCOPED_TRACE(random.trace());
  for (const GateSpec& spec : kGates) {
    for (const int64_t width : {1, 3, 16, 65}) {
      const auto x = random.uniforms(3 * 2 * width, -4.0f, 4.0f);
      const Matrix in(*backend_, 3, 2 * width, x), out(*backend_, 3, width);
      backend_->gate_mul(in.view(), spec, out.view());
      const auto got = out.values();
      for (const int64_t i : {int64_t{0}, width - 1, 3 * width - 1}) {
        const auto at = size_t(i / width * 2 * width + i % width);
        EXPECT_EQ(run(spec, {x[at]}, {x[at + size_t(width)]})[0], got[size_t(i)]) << width;
      }
    }
  }
}

TEST_P(Gates, RefuseWhatTheyAreNot) {
  const std::vector<float> one = {1.0f};
  EXPECT_THROW(run({.activation = Activation::kQuickGelu}, one, one), InternalError);
  EXPECT_THROW(run({.activation = Activation::kGeluTanh, .limit = 7.0f}, one, one), InternalError);
  EXPECT_THROW(run({.activation = Activation::kRelu2}, one, one), InternalError);
  EXPECT_THROW(run({.activation = Activation::kGeluErf, .factor = 2.0f}, one, one), InternalError);
  EXPECT_THROW(run({.limit = 7.0f, .factor = 2.0f}, one, one), InternalError);
  EXPECT_THROW(run({.limit = -1.0f}, one, one), InternalError);
  EXPECT_THROW(run({.limit = std::numeric_limits<float>::infinity()}, one, one), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, Gates,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
