// scale, mul_sigmoid, cap_logits, and norms without a weight or a bias, against the reference or
// exact arithmetic.

#include <cmath>
#include <cstring>
#include <limits>

#include "parity/parity.h"

namespace headrace::parity {
namespace {

constexpr int64_t kRowWidths[] = {1, 3, 16, 65, 300};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Elementwise : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    HEADRACE_REQUIRE_ISA(GetParam());
    backend_ = make_backend(GetParam());
  }

  std::unique_ptr<Backend> backend_;
  Random random_{91};
};

TEST_P(Elementwise, Scales) {
  for (const int64_t width : kRowWidths) {
    const auto x = random_.uniforms(5 * (width + 3));
    const Matrix values(*backend_, 5, width + 3, x), out(*backend_, 5, width);
    backend_->scale(values.view().columns(2, width), 0.5f, out.view());
    const auto halves = out.values();
    for (size_t i = 0; i < halves.size(); ++i) {
      const size_t row = i / size_t(width), column = i % size_t(width);
      ASSERT_EQ(halves[i], 0.5f * x[row * size_t(width + 3) + 2 + column]) << width;
    }
    const TensorView some = values.view().columns(2, width);
    backend_->scale(some, 0.22f, some);
    const auto got = values.values();
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t column = int64_t(i) % (width + 3);
      ASSERT_EQ(got[i], column >= 2 && column < width + 2 ? x[i] * 0.22f : x[i]) << width;
    }
  }
  const Matrix values(*backend_, 1, 3);
  EXPECT_THROW(backend_->scale(values.view(), kNan, values.view()), InternalError);
}

// The exponential (2 ulp), the sum and the quotient: 6 roundoffs, and the reference's. Where the
// exponential overflows, what is left is below 1e-37 of `out`.
TEST_P(Elementwise, MultipliesBySigmoids) {
  SCOPED_TRACE(random_.trace());
  for (const int64_t width : kRowWidths) {
    const auto gate = random_.uniforms(5 * (width + 3), -30.0f, 30.0f);
    const auto x = random_.uniforms(5 * width);
    const Matrix gates(*backend_, 5, width + 3, gate), out(*backend_, 5, width, x);
    backend_->mul_sigmoid(gates.view().columns(3, width), out.view());
    const auto got = out.values();
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t row = i / size_t(width), column = i % size_t(width);
      const double y = gate[row * size_t(width + 3) + column + 3];
      const double want = x[i] / (1.0 + std::exp(-y));
      ASSERT_NEAR(got[i], want, std::abs(want) * 7 * kF32Roundoff) << y;
    }
  }
  const Matrix gates(*backend_, 1, 4, {kInfinity, -kInfinity, kNan, -200.0f});
  const Matrix out(*backend_, 1, 4, {2.0f, 2.0f, 2.0f, 2.0f});
  backend_->mul_sigmoid(gates.view(), out.view());
  const auto got = out.values();
  EXPECT_EQ(got[0], 2.0f);
  EXPECT_EQ(got[1], 0.0f);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_NEAR(got[3], 0.0f, 1e-37f);
  const Matrix narrow(*backend_, 1, 3);
  EXPECT_THROW(backend_->mul_sigmoid(narrow.view(), out.view()), InternalError);
}

std::vector<float> capped(Backend& backend, const std::vector<float>& logits, float factor,
                          float cap) {
  const Matrix values(backend, 1, int64_t(logits.size()), logits);
  backend.cap_logits(values.view(), factor, cap);
  return values.values();
}

// The hyperbolic tangent: where it is 1 - q, q <= 0.45 is off by 4 roundoffs of its exponential
// (2 ulp) less the share of it in q, and by those of a sum and a quotient, 5.1 in all; with the
// difference that is 5 roundoffs of the result. The product and the quotient before it move its
// argument by 2 roundoffs, of which at most 2 remain; then the last product and the reference.
TEST_P(Elementwise, CapsLogits) {
  std::vector<float> x;
  for (float v = -12.0f; v <= 12.0f; v += 0.00111f) x.push_back(v);
  for (float v = 1e-36f; v < 1e30f; v *= 1.7f) x.insert(x.end(), {v, -v});
  for (const auto& [factor, cap] : {std::pair{1.0f, 1.0f}, {0.0625f, 0.4f}, {1.5f, 30.0f}}) {
    const auto got = capped(*backend_, x, factor, cap);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = cap * std::tanh(double{x[i]} * double{factor} / double{cap});
      ASSERT_NEAR(got[i], want, std::abs(want) * 9 * kF32Roundoff) << x[i] << " " << cap;
    }
  }
  EXPECT_NEAR(capped(*backend_, {60.0f}, 1.0f, 30.0f)[0], 28.9208f, 5e-5f);
}

TEST_P(Elementwise, CapsWhatIsNotFinite) {
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> x = {kInfinity, -kInfinity, largest, -largest, 0.0f, kNan};
  const auto got = capped(*backend_, x, 16.0f, 30.0f);
  const std::vector<float> want = {30.0f, -30.0f, 30.0f, -30.0f, 0.0f};
  EXPECT_EQ(std::vector<float>(got.begin(), got.end() - 1), want);
  EXPECT_TRUE(std::isnan(got.back()));
  const auto scaled = capped(*backend_, x, 0.5f, 0.0f);
  const std::vector<float> halves = {kInfinity, -kInfinity, largest / 2, -largest / 2, 0.0f};
  EXPECT_EQ(std::vector<float>(scaled.begin(), scaled.end() - 1), halves);
  EXPECT_TRUE(std::isnan(scaled.back()));
  EXPECT_THROW(capped(*backend_, x, 1.0f, -1.0f), InternalError);
  EXPECT_THROW(capped(*backend_, x, 0.0f, 1.0f), InternalError);
  EXPECT_THROW(capped(*backend_, x, 1.0f, kNan), InternalError);
}

// A row longer than what a thread takes at once, in company and alone.
TEST_P(Elementwise, CapsDoNotDependOnTheirPlace) {
  SCOPED_TRACE(random_.trace());
  constexpr size_t kVocabulary = 9001;
  const auto x = random_.uniforms(3 * int64_t{kVocabulary}, -90.0f, 90.0f);
  const Matrix values(*backend_, 3, kVocabulary, x);
  backend_->cap_logits(values.view(), 0.7f, 30.0f);
  const auto got = values.values();
  for (const size_t i : {size_t{0}, size_t{4095}, size_t{4096}, kVocabulary - 1, x.size() - 1}) {
    EXPECT_EQ(capped(*backend_, {x[i]}, 0.7f, 30.0f)[0], got[i]) << i;
  }
}

// A factor of 1 is exact, and so is a shift by 0.
TEST_P(Elementwise, NormsTakeNoWeightAndNoBias) {
  SCOPED_TRACE(random_.trace());
  for (const int64_t width : kRowWidths) {
    const auto x = random_.uniforms(4 * width, -3.0f, 3.0f), more = random_.uniforms(4 * width);
    const Matrix in(*backend_, 4, width, x), delta(*backend_, 4, width, more);
    const Matrix want(*backend_, 4, width), got(*backend_, 4, width);
    const Matrix ones(*backend_, 1, width, std::vector<float>(size_t(width), 1.0f));
    const Matrix zeros(*backend_, 1, width, std::vector<float>(size_t(width), 0.0f));
    const Matrix weight(*backend_, 1, width, random_.uniforms(width));
    backend_->rms_norm(in.view(), ones.vector(), 1e-5f, want.view());
    backend_->rms_norm(in.view(), {}, 1e-5f, got.view());
    EXPECT_EQ(got.values(), want.values()) << width;
    backend_->layer_norm(in.view(), weight.vector(), zeros.vector(), 1e-5f, want.view());
    backend_->layer_norm(in.view(), weight.vector(), {}, 1e-5f, got.view());
    EXPECT_EQ(got.values(), want.values()) << width;
    const Matrix again(*backend_, 4, width, x);
    backend_->add_rms_norm(in.view(), delta.view(), ones.vector(), 1e-5f, want.view());
    backend_->add_rms_norm(again.view(), delta.view(), {}, 1e-5f, got.view());
    EXPECT_EQ(got.values(), want.values()) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Elementwise,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
