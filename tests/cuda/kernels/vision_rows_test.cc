// The kernels of vision towers that work row by row, in the emulation, against the CPU's reference.

#include <cmath>
#include <limits>

#include "backend/host/rope_angles.h"
#include "backend/reference/reference_rows.h"
#include "backend/reference/reference_vision.h"
#include "cuda/kernels/elementwise/activate.h"
#include "cuda/kernels/elementwise/add.h"
#include "cuda/kernels/rows/layer_norm.h"
#include "cuda/kernels/rows/rope_table.h"
#include "cuda/kernels/vision/rotate.h"
#include "cuda/kernels/vision/scatter_rows.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

constexpr Activation kActivations[] = {Activation::kSilu,     Activation::kGeluErf,
                                       Activation::kGeluTanh, Activation::kQuickGelu,
                                       Activation::kRelu2,    Activation::kTanh};

class VisionRows : public KernelTest {
 protected:
  Random random_{92};
};

TensorView host_view(std::vector<float>& values, int64_t rows) {
  return TensorView(values.data(), DType::kF32, {rows, static_cast<int64_t>(values.size()) / rows});
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

// As on the CPU (tests/parity/vision): the mean is off by m = gamma_{n+1} of the mean magnitude,
// the sum of squares around it by gamma_{n+3} and by n m^2; the root halves both, and it, the
// quotients and the difference add 6 roundoffs; the last product and sum one of what they give and
// of the bias, and so does the reference. Then one rounding to the dtype.
TEST_P(VisionRows, LayerNormMatchesTheReference) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t width : {1, 7, 64, 200, 1152, 6144 * 3}) {
      const int64_t rows = width > 2000 ? 1 : 3;
      auto x = random_.uniforms(dtype, rows * width, -1.0f, 5.0f);
      auto weight = random_.uniforms(dtype, width, -2.0f, 2.0f);
      auto bias = random_.uniforms(dtype, width);
      std::vector<float> want(x.size());
      reference_layer_norm(host_view(x, rows), TensorView(weight.data(), DType::kF32, {width}),
                           TensorView(bias.data(), DType::kF32, {width}), 1e-5f,
                           host_view(want, rows));
      const DeviceMatrix in(dtype, rows, width, x), scale(dtype, 1, width, weight);
      const DeviceMatrix shift(dtype, 1, width, bias), out(dtype, rows, width);
      layer_norm({dtype, in.matrix(), scale.data(), shift.data(), 1e-5f, out.matrix()}, nullptr);
      const double u = 0x1p-24;
      std::vector<Moments> all;
      for (int64_t i = 0; i < rows; ++i)
        all.emplace_back(&x[static_cast<size_t>(i * width)], width);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / width, column = static_cast<int64_t>(i) % width;
        const Moments& moments = all[static_cast<size_t>(row)];
        const double m = double(width + 1) * u * moments.magnitude / moments.deviation;
        const double z = std::abs(x[i] - moments.mean) / moments.deviation;
        const double factor = 0.5 * (double(width + 3) * u + m * m) + 6 * u;
        const double w = std::abs(double{weight[static_cast<size_t>(column)]});
        const double ends = 2 * u * (std::abs(double{bias[static_cast<size_t>(column)]}) + w * z);
        ASSERT_NEAR(
            out.at(row, column), want[i],
            w * (m + (z + m) * factor) + ends + 1.01 * roundoff(dtype) * std::abs(double{want[i]}))
            << dtype_name(dtype) << " " << width;
      }
      layer_norm({dtype, in.matrix(), scale.data(), shift.data(), 1e-5f, in.matrix()}, nullptr);
      ASSERT_EQ(in.values(), out.values()) << "in place";
    }
  }
}

TEST_P(VisionRows, LayerNormOfARowAloneHasTheSameBits) {
  for (const DType dtype : kDTypes) {
    const auto x = random_.uniforms(dtype, 4 * 1280), weight = random_.uniforms(dtype, 1280);
    const DeviceMatrix in(dtype, 4, 1280, x), scale(dtype, 1, 1280, weight), out(dtype, 4, 1280);
    layer_norm({dtype, in.matrix(), scale.data(), scale.data(), 1e-6f, out.matrix()}, nullptr);
    const DeviceMatrix last(dtype, 1, 1280, {x.end() - 1280, x.end()}), alone(dtype, 1, 1280);
    layer_norm({dtype, last.matrix(), scale.data(), scale.data(), 1e-6f, alone.matrix()}, nullptr);
    for (int64_t i = 0; i < 1280; ++i) ASSERT_EQ(alone.at(0, i), out.at(3, i));
  }
}

// As on the CPU: 2 roundoffs of x for the argument, 8 of the result; of GELU by erf 10 of x, as a
// GPU's tail is good to 4 ulp. Then one rounding to the dtype.
TEST_P(VisionRows, ActivationsMatchTheReference) {
  std::vector<float> values;
  for (float v = -20.0f; v <= 20.0f; v += 0.0613f) values.push_back(v);
  for (float v = 1e-30f; v < 1e4f; v *= 2.7f) values.insert(values.end(), {v, -v});
  values.resize(values.size() / 8 * 8);
  for (const DType dtype : kDTypes) {
    for (const Activation kind : kActivations) {
      for (const int64_t gap : {0, 3}) {
        std::vector<float> x = values;
        for (float& v : x) v = round_to_dtype(dtype, v);
        const int64_t rows = 2, cols = static_cast<int64_t>(x.size()) / rows;
        const DeviceMatrix in(dtype, rows, cols, x, gap);
        auto want = x;
        reference_activate(kind, host_view(want, rows));
        activate({dtype, kind, in.matrix()}, nullptr);
        const auto got = in.values();
        for (size_t i = 0; i < x.size(); ++i) {
          if (std::isinf(round_to_dtype(dtype, want[i]))) {  // float16's end
            ASSERT_EQ(got[i], round_to_dtype(dtype, want[i]));
            continue;
          }
          const double size = std::abs(double{x[i]}), result = std::abs(double{want[i]});
          const double bound = kind == Activation::kGeluErf ? 10 * size : 2.0 * size + 8.0 * result;
          const double tiny = dtype == DType::kF16 ? 0x1p-25 : 1e-35;
          ASSERT_NEAR(got[i], want[i], bound * 0x1p-24 + 1.01 * roundoff(dtype) * result + tiny)
              << x[i] << " kind " << int(kind);
        }
      }
    }
  }
}

TEST_P(VisionRows, ActivationsAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f, inf, std::numeric_limits<float>::quiet_NaN(), -1e4f};
  for (const Activation kind : kActivations) {
    const DeviceMatrix in(DType::kF32, 1, 4, x);
    activate({DType::kF32, kind, in.matrix()}, nullptr);
    EXPECT_EQ(in.at(0, 0), 0.0f);
    const bool is_tanh = kind == Activation::kTanh;
    EXPECT_EQ(in.at(0, 1), is_tanh ? 1.0f : inf);
    EXPECT_TRUE(std::isnan(in.at(0, 2)));
    EXPECT_EQ(in.at(0, 3), is_tanh ? -1.0f : 0.0f) << int(kind);
  }
}

// Two products and a sum, each rounded once, the reference's rounding, and one to the dtype.
TEST_P(VisionRows, RotatesHalves) {
  SCOPED_TRACE(random_.trace());
  const int64_t rows = 3;
  const int32_t heads = 3;
  for (const DType dtype : kDTypes) {
    for (const int32_t d : {2, 16, 64, 72, 80}) {
      const int64_t cols = int64_t{heads} * d;
      for (const int64_t gap : {0, 8, 5}) {
        auto x = random_.uniforms(dtype, rows * cols),
             table = random_.uniforms(DType::kF32, rows * d);
        const DeviceMatrix in(dtype, rows, cols, x, gap);
        const DeviceArray<float> angles(table);
        auto want = x;
        reference_rotate(host_view(want, rows), host_view(table, rows), heads, d);
        rotate({dtype, in.matrix(), angles.data(), d, heads, d}, nullptr);
        const auto got = in.values();
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got[i], want[i],
                      4 * 0x1p-24 * 2.0 + 1.01 * roundoff(dtype) * std::abs(double{want[i]}))
              << dtype_name(dtype) << " " << d;
        }
      }
    }
  }
}

TEST_P(VisionRows, AddRoundsOnce) {
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {5, 64, 2056}) {
      const auto a = random_.uniforms(dtype, 3 * cols), b = random_.uniforms(dtype, 3 * cols);
      const DeviceMatrix x(dtype, 3, cols, a, 8), out(dtype, 3, cols, b);
      add({dtype, x.matrix(), out.matrix()}, nullptr);
      const auto got = out.values();
      for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(got[i], round_to_dtype(dtype, a[i] + b[i]));
    }
  }
}

TEST_P(VisionRows, ScattersRows) {
  for (const DType dtype : kDTypes) {
    for (const int64_t cols : {33, 64}) {
      const auto values = random_.uniforms(dtype, 3 * cols),
                 old = random_.uniforms(dtype, 9 * cols);
      const DeviceMatrix x(dtype, 3, cols, values, 8), out(dtype, 9, cols, old);
      const DeviceArray<int32_t> rows = {8, 0, 5};
      scatter_rows({dtype, x.matrix(), rows.data(), out.matrix()}, nullptr);
      auto want = old;
      for (int64_t i = 0; i < 3; ++i) {
        std::copy_n(values.begin() + i * cols, cols, want.begin() + rows.data()[i] * cols);
      }
      EXPECT_EQ(out.values(), want);
    }
  }
}

TEST_P(VisionRows, RopeTableGoesByAxesWithTheCpusBits) {
  RopeSpec spec;
  spec.rotary_dim = 24;
  for (int i = 0; i < 12; ++i) {
    spec.inv_freq.push_back(static_cast<float>(std::pow(10000.0, -i / 12.0)));
    spec.axes.push_back(static_cast<uint8_t>((i * 5 + 1) % 3));
  }
  const std::vector<int32_t> places = {7, 100, 2, 0, 55, 9, 31, 8, 1};  // [3][3]
  const DeviceArray<int32_t> positions = {4, 5, 6}, lens = {9, 9, 9}, on_axes(places);
  const DeviceArray<float> inv_freq(spec.inv_freq), table(3 * 24);
  const DeviceArray<uint8_t> axes(spec.axes);
  rope_table({.angles = {inv_freq.data(), 24, 1.0f, 0, 0.0, 1.0},
              .positions = positions.data(),
              .rope_lens = lens.data(),
              .axis_positions = on_axes.data(),
              .axes = axes.data(),
              .rows = 3,
              .out = table.data(),
              .out_stride = 24},
             nullptr);
  std::vector<float> want(24);
  const auto got = table.values();
  for (size_t row = 0; row < 3; ++row) {
    rope_angles(spec, {places[row], places[3 + row], places[6 + row]}, 9, want.data());
    EXPECT_EQ(std::vector<float>(got.begin() + static_cast<ptrdiff_t>(row) * 24,
                                 got.begin() + static_cast<ptrdiff_t>(row + 1) * 24),
              want);
  }
}

HEADRACE_KERNEL_TESTS(VisionRows);

}  // namespace
}  // namespace headrace::cuda
