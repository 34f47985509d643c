// Kernels that look at one element at a time, and norms whose weight is float32 or missing.

#include <cmath>
#include <limits>

#include "cuda/kernels/elementwise/cap_logits.h"
#include "cuda/kernels/elementwise/mul_sigmoid.h"
#include "cuda/kernels/elementwise/scale.h"
#include "cuda/kernels/rows/layer_norm.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Elementwise : public KernelTest {
 protected:
  Random random_{97};
};

/// What a kernel leaves at column j of row i must be near want(i, j), by `roundoffs` of float32 and
/// one of the dtype.
template <class Want>
void expect_near(const DeviceMatrix& got, double roundoffs, const Want& want) {
  for (int64_t i = 0; i < got.rows(); ++i) {
    for (int64_t j = 0; j < got.cols(); ++j) {
      const double expected = want(i, j);
      const double bound = roundoffs * 0x1p-24 + 1.01 * roundoff(got.dtype());
      ASSERT_NEAR(got.at(i, j), expected, bound * std::abs(expected) + 0x1p-25) << i << " " << j;
    }
  }
}

TEST_P(Elementwise, ScalesAndMultipliesBySigmoids) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {1, 7, 64, 520}) {
      const auto x = random_.uniforms(dtype, 3 * cols);
      const DeviceMatrix scaled(dtype, 3, cols, x, 8), apart(dtype, 3, cols);
      scale({dtype, scaled.matrix(), 0.22f, apart.matrix()}, nullptr);
      scale({dtype, scaled.matrix(), 0.22f, scaled.matrix()}, nullptr);
      const auto at = [&](int64_t i, int64_t j) { return x[static_cast<size_t>(i * cols + j)]; };
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          ASSERT_EQ(scaled.at(i, j), round_to_dtype(dtype, at(i, j) * 0.22f));
          ASSERT_EQ(apart.at(i, j), scaled.at(i, j));
        }
      }
      // The gate: columns of wider rows, aligned or not. Roundoffs as on the CPU.
      for (const int64_t offset : {0, 3}) {
        const DeviceMatrix gate(dtype, 3, cols, random_.uniforms(dtype, 3 * cols, -20.0f, 20.0f), 8,
                                offset);
        const DeviceMatrix out(dtype, 3, cols, x);
        mul_sigmoid({dtype, gate.matrix(), out.matrix()}, nullptr);
        expect_near(out, 7, [&](int64_t i, int64_t j) {
          return double{at(i, j)} / (1.0 + std::exp(-double{gate.at(i, j)}));
        });
      }
    }
  }
}

// tanhf is good to 2 ulp; two quotients and products as on the CPU.
TEST_P(Elementwise, CapsLogits) {
  std::vector<float> x = {kInfinity, -kInfinity, NAN, 0.0f};
  for (float v = -95.0f; v <= 95.0f; v += 0.37f) x.push_back(v);
  for (const int64_t rows : {1, 4}) {
    const auto cols = static_cast<int64_t>(x.size()) / rows;
    for (const float cap : {30.0f, 0.0f}) {
      const DeviceMatrix logits(DType::kF32, rows, cols, x);
      cap_logits({logits.matrix(), 0.7f, cap}, nullptr);
      EXPECT_EQ(logits.at(0, 0), cap > 0.0f ? cap : kInfinity);
      EXPECT_EQ(logits.at(0, 1), cap > 0.0f ? -cap : -kInfinity);
      EXPECT_TRUE(std::isnan(logits.at(0, 2)));
      for (int64_t i = 3; i < rows * cols; ++i) {
        const double l = double{x[static_cast<size_t>(i)]} * double{0.7f};
        const double want = cap > 0.0f ? double{cap} * std::tanh(l / double{cap}) : l;
        ASSERT_NEAR(logits.at(i / cols, i % cols), want, std::abs(want) * 9 * 0x1p-24) << l;
      }
    }
  }
}

// A weight that both dtypes hold gives the same bits in either; no weight, those of ones.
TEST_P(Elementwise, NormsTakeFloatWeightsOrNone) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {5, 256, 2600}) {
      const DeviceMatrix x(dtype, 2, cols, random_.uniforms(dtype, 2 * cols));
      const auto shared = random_.uniforms(dtype, cols, 0.5f, 2.0f);
      const DeviceMatrix narrow(dtype, 1, cols, shared), wide(DType::kF32, 1, cols, shared);
      const DeviceMatrix ones(dtype, 1, cols, std::vector<float>(static_cast<size_t>(cols), 1.0f));
      const DeviceMatrix zeros(dtype, 1, cols, std::vector<float>(static_cast<size_t>(cols), 0.0f));
      const auto norm = [&](const void* weight, bool is_float) {
        const DeviceMatrix out(dtype, 2, cols);
        rms_norm({.dtype = dtype,
                  .x = x.matrix(),
                  .weight = weight,
                  .out = out.matrix(),
                  .float_weight = is_float},
                 nullptr);
        return out.values();
      };
      EXPECT_EQ(norm(wide.data(), true), norm(narrow.data(), false)) << cols;
      EXPECT_EQ(norm(nullptr, false), norm(ones.data(), false)) << cols;
      // 1 + w of bfloat16 numbers needs float32: a rounded weight would show in float32.
      if (dtype == DType::kF32) continue;
      auto exact = shared;
      for (float& w : exact) w += 0x1p-9f;
      const DeviceMatrix more(DType::kF32, 1, cols, exact), plain(DType::kF32, 1, cols, shared);
      EXPECT_NE(norm(more.data(), true), norm(plain.data(), true)) << cols;
      const auto shift = [&](const void* bias) {
        const DeviceMatrix out(dtype, 2, cols);
        layer_norm({dtype, x.matrix(), narrow.data(), bias, 1e-5f, out.matrix()}, nullptr);
        return out.values();
      };
      EXPECT_EQ(shift(nullptr), shift(zeros.data())) << cols;
    }
  }
}

HEADRACE_KERNEL_TESTS(Elementwise);

}  // namespace
}  // namespace headrace::cuda
