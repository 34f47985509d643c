// layer_norm, activate, rotate and scatter_rows against the reference or exact arithmetic, and
// against themselves in other company.

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "parity/parity.h"

namespace headrace::parity {
namespace {

constexpr int64_t kWidths[] = {1, 3, 16, 63, 65, 300, 1030};
constexpr Activation kActivations[] = {Activation::kSilu,     Activation::kGeluErf,
                                       Activation::kGeluTanh, Activation::kQuickGelu,
                                       Activation::kRelu2,    Activation::kTanh};

class VisionRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

std::vector<float> run_norm(Backend& backend, int64_t rows, const std::vector<float>& x,
                            const std::vector<float>& weight, const std::vector<float>& bias,
                            bool in_place = false) {
  const auto width = static_cast<int64_t>(weight.size());
  const Matrix input(backend, rows, width, x), out(backend, rows, width);
  const Matrix scale(backend, 1, width, weight), shift(backend, 1, width, bias);
  backend.layer_norm(input.view(), scale.vector(), shift.vector(), 1e-5f,
                     in_place ? input.view() : out.view());
  return in_place ? input.values() : out.values();
}

/// A row's mean, the mean of its magnitudes, and sqrt(variance + 1e-5).
struct Moments {
  double mean = 0.0, magnitude = 0.0, deviation = 0.0;

  Moments(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) mean += double{x[i]} / double(n);
    for (int64_t i = 0; i < n; ++i) magnitude += std::abs(double{x[i]}) / double(n);
    double squares = 0.0;
    for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    deviation = std::sqrt(squares / double(n) + double{1e-5f});
  }
};

// The mean is off by m = gamma_{n+1} of the mean magnitude. The sum of squares around it is off by
// gamma_{n+3} and by n m^2; the root halves both, and it, the quotients and the difference add 6
// roundoffs. The last product and sum add one roundoff of what they give and of the bias, and so
// does the reference.
TEST_P(VisionRows, LayerNormMatchesReference) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(GetParam());
  Random random(81);
  SCOPED_TRACE(random.trace());
  for (const int64_t width : kWidths) {
    for (const float offset : {0.0f, 50.0f}) {
      const int64_t rows = 7;
      const auto x = random.uniforms(rows * width, offset - 3.0f, offset + 3.0f);
      const auto weight = random.uniforms(width, -2.0f, 2.0f), bias = random.uniforms(width);
      const auto want = run_norm(*reference, rows, x, weight, bias);
      const auto got = run_norm(*backend, rows, x, weight, bias);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto row = int64_t(i) / width, column = int64_t(i) % width;
        const Moments moments(&x[size_t(row * width)], width);
        const double m = double(width + 1) * kF32Roundoff * moments.magnitude / moments.deviation;
        const double z = std::abs(x[i] - moments.mean) / moments.deviation;
        const double factor = 0.5 * (double(width + 3) * kF32Roundoff + m * m) + 6 * kF32Roundoff;
        const double w = std::abs(double{weight[size_t(column)]});
        const double ends = 2 * kF32Roundoff * (std::abs(double{bias[size_t(column)]}) + w * z);
        ASSERT_NEAR(got[i], want[i], w * (m + (z + m) * factor) + ends) << width;
      }
      EXPECT_EQ(run_norm(*backend, rows, x, weight, bias, true), got);
      // Rows alone, by other threads.
      const std::vector<float> last(x.end() - width, x.end());
      const auto alone = run_norm(*make_backend(GetParam(), 1), 1, last, weight, bias);
      ASSERT_EQ(0, std::memcmp(&got[size_t((rows - 1) * width)], alone.data(), size_t(width) * 4));
    }
  }
}

std::vector<float> run_activate(Backend& backend, Activation kind, int64_t rows,
                                const std::vector<float>& x) {
  const Matrix values(backend, rows, static_cast<int64_t>(x.size()) / rows, x);
  backend.activate(kind, values.view());
  return values.values();
}

// With s = sigmoid(y): the exponential (2 ulp), the sum and the quotient are off by 7 roundoffs of
// the result; an argument y off by c roundoffs changes x * s by c * |y| * s * (1 - s) <= 0.23 c of
// |x|, where c is 0 for SiLU, 2 for quick GELU and 7 for GELU by tanh. GELU by erf: the tail is off
// by 0.7 roundoffs absolutely and by 2 ulp, then one difference and one product: 4 roundoffs of x.
// Where an exponential overflows, x * s is below 1e-35. tanh is off by 3 ulp, 6 roundoffs of the
// result.
TEST_P(VisionRows, ActivationsMatchReference) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(GetParam());
  std::vector<float> x;
  for (float v = -20.0f; v <= 20.0f; v += 0.00311f) x.push_back(v);
  for (float v = 1e-30f; v < 1e6f; v *= 1.7f) x.insert(x.end(), {v, -v});
  for (const Activation kind : kActivations) {
    const auto want = run_activate(*reference, kind, 1, x);
    const auto got = run_activate(*backend, kind, 1, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double bound =
          (2.0 * std::abs(double{x[i]}) + 8.0 * std::abs(double{want[i]})) * kF32Roundoff + 1e-35;
      const double tail_bound = 5.0 * std::abs(double{x[i]}) * kF32Roundoff;
      ASSERT_NEAR(got[i], want[i], kind == Activation::kGeluErf ? tail_bound : bound)
          << x[i] << " kind " << int(kind);
    }
  }
}

TEST_P(VisionRows, ActivationsAtTheEnds) {
  const auto backend = make_backend(GetParam());
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f, inf, std::numeric_limits<float>::quiet_NaN(), -1e4f};
  for (const Activation kind : kActivations) {
    const auto got = run_activate(*backend, kind, 1, x);
    EXPECT_EQ(got[0], 0.0f);
    const bool is_tanh = kind == Activation::kTanh;
    EXPECT_EQ(got[1], is_tanh ? 1.0f : inf);
    EXPECT_TRUE(std::isnan(got[2]));
    EXPECT_EQ(got[3], is_tanh ? -1.0f : 0.0f) << int(kind);
  }
}

TEST_P(VisionRows, ActivationsDoNotDependOnTheirPlace) {
  Random random(82);
  SCOPED_TRACE(random.trace());
  const auto backend = make_backend(GetParam(), 3);
  const auto x = random.uniforms(5 * 4099, -4.0f, 4.0f);
  for (const Activation kind : kActivations) {
    const auto got = run_activate(*backend, kind, 5, x);
    for (const size_t i : {size_t{0}, size_t{4098}, size_t{4099}, size_t{12345}}) {
      EXPECT_EQ(run_activate(*backend, kind, 1, {x[i]}).front(), got[i]);
    }
  }
}

// Two products and a sum, each rounded once, and the reference's rounding.
TEST_P(VisionRows, RotatesHalves) {
  const auto backend = make_backend(GetParam());
  Random random(83);
  SCOPED_TRACE(random.trace());
  const int64_t rows = 5;
  const int32_t heads = 3;
  for (const int32_t d : {2, 8, 64, 72, 80}) {
    const int64_t cols = int64_t{heads} * d;
    const auto x = random.uniforms(rows * (cols + 5)), table = random.uniforms(rows * d);
    const Matrix values(*backend, rows, cols + 5, x), angles(*backend, rows, d, table);
    backend->rotate(values.view().columns(0, cols), angles.view(), heads, d);
    const auto got = values.values();
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = &x[size_t(row * (cols + 5))];
      const float* to = &got[size_t(row * (cols + 5))];
      for (int64_t i = 0; i < cols; ++i) {
        const int64_t pair = i % (d / 2), head = i / d * d;
        const double a = from[head + pair], b = from[head + pair + d / 2];
        const double c = table[size_t(row * d + pair)], s = table[size_t(row * d + pair + d / 2)];
        const bool lower = i % d < d / 2;
        const double want = lower ? a * c - b * s : b * c + a * s;
        const double size =
            lower ? std::abs(a * c) + std::abs(b * s) : std::abs(b * c) + std::abs(a * s);
        ASSERT_NEAR(to[i], want, 2 * kF32Roundoff * size) << d << " " << i;
      }
      for (int64_t i = cols; i < cols + 5; ++i) ASSERT_EQ(to[i], from[i]) << "beside the heads";
    }
  }
  const Matrix x(*backend, 2, 12), table(*backend, 2, 6);
  EXPECT_THROW(backend->rotate(x.view(), table.view(), 3, 4), InternalError);
  EXPECT_THROW(backend->rotate(x.view(), table.view(), 4, 3), InternalError);
}

TEST_P(VisionRows, ScattersRows) {
  const auto backend = make_backend(GetParam());
  Random random(84);
  SCOPED_TRACE(random.trace());
  const auto x = random.uniforms(3 * 33), start = random.uniforms(50 * 33);
  const Matrix from(*backend, 3, 33, x), out(*backend, 50, 33, start);
  const std::vector<int32_t> rows = {49, 0, 7}, beyond = {49, 50, 7}, twice = {49, 7, 7};
  backend->scatter_rows(from.view(), rows, out.view());
  auto want = start;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(x.begin() + int64_t(i) * 33, 33, want.begin() + rows[i] * 33);
  }
  EXPECT_EQ(out.values(), want);
  EXPECT_THROW(backend->scatter_rows(from.view(), beyond, out.view()), InternalError);
  EXPECT_THROW(backend->scatter_rows(from.view(), twice, out.view()), InternalError);
  EXPECT_EQ(out.values(), want);
}

INSTANTIATE_TEST_SUITE_P(Isas, VisionRows,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
