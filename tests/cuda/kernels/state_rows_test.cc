// Kernels of layers with a state that look at one row at a time, against sums in double.

#include <cmath>

#include "cuda/kernels/elementwise/multiply.h"
#include "cuda/kernels/states/delta_prepare.h"
#include "cuda/kernels/states/gated_norm.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

constexpr double kRoundoff = 0x1p-24;

class StateRowsTest : public KernelTest {
 protected:
  Random random_{73};
};

// Rows that are aligned and rows that aren't have the same bits.
TEST_P(StateRowsTest, DeltaPrepare) {
  SCOPED_TRACE(random_.trace());
  constexpr int64_t kRows = 3;
  for (const DeltaSpec& spec :
       {DeltaSpec{2, 4, 8, 16}, DeltaSpec{1, 35, 128, 8}, DeltaSpec{1, 1, 256, 8}}) {
    for (const DType dtype : kDTypes) {
      const int64_t heads = spec.value_heads, cols = spec.qkv_columns();
      auto x = random_.uniforms(dtype, kRows * cols);
      std::fill_n(x.begin(), spec.key_dim, 0.0f);  // a head of zeros stays one
      auto dt = random_.uniforms(dtype, kRows * heads, -30.0f, 30.0f);
      dt[0] = 200.0f;
      dt.back() = -200.0f;
      const DeviceMatrix b(dtype, kRows, heads, random_.uniforms(dtype, kRows * heads, -9.f, 9.f));
      const DeviceMatrix a(dtype, kRows, heads, dt, 3);
      const DeviceArray<float> a_log(random_.uniforms(DType::kF32, heads));
      const DeviceArray<float> dt_bias(random_.uniforms(DType::kF32, heads));
      const DeviceMatrix aligned(dtype, kRows, cols, x), odd(dtype, kRows, cols, x, 1, 1);
      const DeviceMatrix gates(DType::kF32, kRows, 2 * heads, 1);
      for (const DeviceMatrix* qkv : {&odd, &aligned}) {
        delta_prepare({dtype, qkv->matrix(), b.matrix(), a.matrix(), a_log.data(), dt_bias.data(),
                       spec, gates.matrix()},
                      nullptr);
      }
      EXPECT_EQ(odd.values(), aligned.values());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t c = 0; c < cols; ++c) {
          const float from = x[static_cast<size_t>(row * cols + c)];
          if (c >= 2 * spec.key_columns()) {
            ASSERT_EQ(aligned.at(row, c), from);
            continue;
          }
          double squares = 1e-6;
          for (int64_t i = 0; i < spec.key_dim; ++i) {
            const double k =
                x[static_cast<size_t>(row * cols + c / spec.key_dim * spec.key_dim + i)];
            squares += k * k;
          }
          if (c < spec.key_columns()) squares *= spec.key_dim;
          // Half of 8 products and 6 sums, a root, a quotient, two products.
          const double want = from / std::sqrt(squares);
          ASSERT_NEAR(aligned.at(row, c), want,
                      (12 * kRoundoff + 1.01 * roundoff(dtype)) * std::abs(want) + 0x1p-25);
        }
        for (int64_t h = 0; h < heads; ++h) {
          const double sum = double{a.at(row, h)} + double{dt_bias.data()[h]};
          const double softplus = std::max(sum, 0.0) + std::log1p(std::exp(-std::abs(sum)));
          const double y = std::exp(double{a_log.data()[h]}) * softplus;
          // softplus is good to |sum| + 8 roundoffs of itself, exp to 4.
          ASSERT_NEAR(gates.at(row, h), std::exp(-y),
                      std::exp(-y) * (y * (std::abs(sum) + 14) + 4) * kRoundoff + 1e-37)
              << sum;
          const double beta = 1.0 / (1.0 + std::exp(-double{b.at(row, h)}));
          ASSERT_NEAR(gates.at(row, heads + h), beta, 7 * kRoundoff * beta);
        }
      }
    }
  }
}

// Groups by warps and by blocks, of vectors and of single numbers, held or read twice.
TEST_P(StateRowsTest, GatedNorm) {
  SCOPED_TRACE(random_.trace());
  struct Case {
    int32_t group, groups;
    int64_t offset;
  };
  using Gate = GatedNormSpec::Gate;
  int number = 0;
  for (const auto& [group, groups, offset] :
       {Case{16, 6, 0}, {5, 2, 0}, {128, 3, 1}, {1056, 2, 0}, {2200, 1, 3}, {16400, 1, 0}}) {
    for (const DType dtype : kDTypes) {
      const bool first = ++number % 2 == 0, shares = number % 3 == 0, silu = number % 4 < 2;
      SCOPED_TRACE(testing::Message() << group << " " << dtype_name(dtype) << " " << number);
      const int64_t rows = group < 1000 ? 3 : 1, cols = int64_t{group} * groups;
      const DeviceMatrix x(dtype, rows, cols, random_.uniforms(dtype, rows * cols), 8, offset);
      const DeviceMatrix gate(dtype, rows, cols,
                              random_.uniforms(dtype, rows * cols, -20.0f, 20.0f), 0, offset);
      const DeviceArray<float> weight(random_.uniforms(DType::kF32, shares ? group : cols));
      const DeviceMatrix out(dtype, rows, cols), in_place(dtype, rows, cols, x.values());
      const GatedNormSpec spec{group, 1e-5f, silu ? Gate::kSilu : Gate::kSigmoid, first};
      gated_norm({dtype, x.matrix(), gate.matrix(), weight.data(), shares, spec, out.matrix()},
                 nullptr);
      if (offset == 0) {
        gated_norm({dtype, in_place.matrix(), gate.matrix(), weight.data(), shares, spec,
                    in_place.matrix()},
                   nullptr);
        EXPECT_EQ(in_place.values(), out.values());
      }
      const auto open = [&](int64_t i, int64_t j) {
        const double g = gate.at(i, j);
        return (silu ? g : 1.0) / (1.0 + std::exp(-g));
      };
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t begin = 0; begin < cols; begin += group) {
          double squares = 0.0;
          for (int64_t j = begin; j < begin + group; ++j) {
            const double value = x.at(i, j) * (first ? open(i, j) : 1.0);
            squares += value * value;
          }
          const double factor = 1.0 / std::sqrt(squares / group + double{1e-5f});
          for (int64_t j = begin; j < begin + group; ++j) {
            const double want =
                x.at(i, j) * open(i, j) * factor * weight.data()[shares ? j - begin : j];
            // Half of a chain of up to 40 and 20 sums, a root, quotients, products, gates.
            ASSERT_NEAR(out.at(i, j), want,
                        (50 * kRoundoff + 1.01 * roundoff(dtype)) * std::abs(want) + 0x1p-25)
                << i << " " << j;
          }
        }
      }
    }
  }
}

TEST_P(StateRowsTest, Multiply) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {7, 64}) {
      const auto x = random_.uniforms(dtype, 3 * cols), y = random_.uniforms(dtype, 3 * cols);
      std::vector<float> want(x.size());
      for (size_t i = 0; i < x.size(); ++i) want[i] = round_to_dtype(dtype, x[i] * y[i]);
      const DeviceMatrix a(dtype, 3, cols, x), b(dtype, 3, cols, y, 8), out(dtype, 3, cols);
      for (const DeviceMatrix* to : {&out, &a}) {
        multiply({dtype, a.matrix(), b.matrix(), to->matrix()}, nullptr);
        EXPECT_EQ(to->values(), want);
      }
      const DeviceMatrix again(dtype, 3, cols, x);
      multiply({dtype, again.matrix(), b.matrix(), b.matrix()}, nullptr);
      EXPECT_EQ(b.values(), want);
    }
  }
}

HEADRACE_KERNEL_TESTS(StateRowsTest);

}  // namespace
}  // namespace headrace::cuda
