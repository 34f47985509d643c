// linear() in the emulation, against sums in double, and against itself in other company.

#include "cuda/kernels/linear/linear.h"

#include <cmath>
#include <optional>

#include "cuda/kernels/elementwise/gate_mul.h"
#include "cuda/kernels/linear/linear_kernels.h"
#include "device_data.h"
#include "parity/gates.h"

namespace headrace::cuda {
namespace {

struct Options {
  bool bias = false, residual = false, gate_mul = false;
  DType out_dtype = DType::kF32;
  int64_t gap = 0, offset = 0;  // of x, in elements
  int32_t multiprocessors = 132;
  bool plain = false;  // without wgmma
  std::optional<LinearPlan> plan{};
  GateSpec gate{};
};

class LinearCase {
 public:
  LinearCase(DType dtype, int64_t n, int64_t k, bool gate_up, Random& random)
      : dtype_(dtype),
        layout_{n, k, gate_up},
        weights_(random.uniforms(dtype, n * k)),
        bias_(random.uniforms(dtype, n)),
        stored_(dtype, layout_.stored_rows(), layout_.stride(),
                std::vector<float>(static_cast<size_t>(layout_.elements()))),
        bias_data_(dtype, 1, n, bias_) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) stored_.set(layout_.stored_row(i), j, weight(i, j));
    }
  }

  float weight(int64_t i, int64_t j) const {
    return weights_[static_cast<size_t>(i * layout_.k + j)];
  }

  DeviceMatrix run(const std::vector<float>& x, const Options& o,
                   const std::vector<float>& residual = {}) const {
    const auto rows = static_cast<int64_t>(x.size()) / layout_.k;
    const int64_t cols = o.gate_mul ? layout_.n / 2 : layout_.n;
    const DeviceMatrix in(dtype_, rows, layout_.k, x, o.gap, o.offset);
    DeviceMatrix out(o.out_dtype, rows, cols, 3);
    LinearArgs args = arguments(in, o, out);
    const DeviceMatrix add(dtype_, rows, cols,
                           o.residual ? residual : std::vector<float>(size_t(rows * cols)));
    if (o.residual) args.residual = add.matrix();
    launch(args);
    return out;
  }

  DeviceMatrix run_in_place(const std::vector<float>& x, const Options& o,
                            const std::vector<float>& residual) const {
    const auto rows = static_cast<int64_t>(x.size()) / layout_.k;
    const DeviceMatrix in(dtype_, rows, layout_.k, x);
    DeviceMatrix out(o.out_dtype, rows, layout_.n, residual);
    LinearArgs args = arguments(in, o, out);
    args.residual = out.matrix();
    launch(args);
    return out;
  }

  /// Sum and sum of absolute values of a row's products with a feature, with the bias.
  std::pair<double, double> exact(const std::vector<float>& x, int64_t row, int64_t feature,
                                  const Options& o) const {
    double sum = o.bias ? double(bias_[size_t(feature)]) : 0.0, size = std::abs(sum);
    for (int64_t j = 0; j < layout_.k; ++j) {
      const double term = double(x[size_t(row * layout_.k + j)]) * double(weight(feature, j));
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  // float32: one roundoff for each step of the chain. 16-bit: one for each product of 16 and for
  // the bias (a GPU's tensor core, which truncates, needs twice that).
  double bound(double size) const {
    const double steps = dtype_ == DType::kF32 ? double(layout_.k) : double(layout_.k) / 16 + 8;
    return size * (steps + 3) * 0x1p-24;
  }

  const WeightLayout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }

 private:
  LinearArgs arguments(const DeviceMatrix& in, const Options& o, DeviceMatrix& out) const {
    LinearArgs args{.dtype = dtype_,
                    .x = in.matrix(),
                    .weight = stored_.data(),
                    .layout = layout_,
                    .gate_mul = o.gate_mul,
                    .gate = o.gate,
                    .out_dtype = o.out_dtype,
                    .out = out.matrix(),
                    .multiprocessors = o.multiprocessors,
                    .has_wgmma = device_has_wgmma() && !o.plain};
    if (o.bias) args.bias = bias_data_.data();
    if (o.plan) args.plan = &*o.plan;
    return args;
  }
  void launch(LinearArgs& args) const { linear(args, nullptr); }

  DType dtype_;
  WeightLayout layout_;
  std::vector<float> weights_, bias_;
  DeviceMatrix stored_;
  DeviceMatrix bias_data_;
};

class Linear : public KernelTest {
 protected:
  void expect_close(const LinearCase& c, int64_t rows, const Options& o) {
    const auto x = random_.uniforms(c.dtype(), rows * c.layout().k);
    const auto residual = random_.uniforms(c.dtype(), rows * c.layout().n);
    const DeviceMatrix got = c.run(x, o, residual);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < c.layout().n; ++j) {
        auto [want, size] = c.exact(x, i, j, o);
        double bound = c.bound(size + 1.0);
        if (o.residual) {  // which is added to the rounded sum
          bound += (std::abs(want) + bound) * roundoff(o.out_dtype);
          want += double(residual[size_t(i * c.layout().n + j)]);
        }
        bound += (std::abs(want) + bound) * roundoff(o.out_dtype);
        ASSERT_NEAR(got.at(i, j), want, bound)
            << dtype_name(c.dtype()) << " row " << i << " of " << rows << ", feature " << j;
      }
    }
  }

  Random random_{41};
};

TEST_P(Linear, MatchesExactSums) {
  SCOPED_TRACE(random_.trace());
  const int64_t shapes[][2] = {{16, 64}, {40, 72}, {130, 200}, {64, 1100}};
  for (const DType dtype : kDTypes) {
    for (const auto& [n, k] : shapes) {
      const LinearCase c(dtype, n, k, n == 40, random_);
      for (const int64_t rows : {1, 8, 13, 32, 33, 70}) {
        if (rows > 33 && k > 1000) continue;
        expect_close(c, rows, {.bias = rows % 2 == 1, .residual = rows == 13});
        if (rows < 20) expect_close(c, rows, {.out_dtype = dtype, .gap = 3, .offset = 1});
      }
    }
  }
}

// Added in place, as an op of its own would: sum rounded, then rounded with the residual.
TEST_P(Linear, AResidualGivesTheBitsOfTwoOps) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    const LinearCase c(dtype, 72, 136, false, random_);
    for (const int64_t rows : {1, 20, 70, 260}) {
      const auto x = random_.uniforms(dtype, rows * c.layout().k);
      const auto residual = random_.uniforms(dtype, rows * c.layout().n);
      const Options o{.bias = true, .out_dtype = dtype};
      const DeviceMatrix plain = c.run(x, o), sum = c.run_in_place(x, o, residual);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < c.layout().n; ++j) {
          const float two = plain.at(i, j) + residual[size_t(i * c.layout().n + j)];
          ASSERT_EQ(sum.at(i, j), round_to_dtype(dtype, two)) << i << " " << j;
        }
      }
    }
  }
}

TEST_P(Linear, TilesMatchExactSums) {
  const LinearCase c(DType::kBF16, 192, 640, false, random_);
  expect_close(c, 65, {.out_dtype = DType::kBF16, .plain = true});
  // Few multiprocessors: larger tiles.
  expect_close(c, 130, {.bias = true, .multiprocessors = 1, .plain = true});
  expect_close(c, 40, {.gap = 1, .multiprocessors = 1});
}

TEST_P(Linear, WgmmaMatchesExactSums) {
  SCOPED_TRACE(random_.trace());
  struct Shape {
    int64_t n, k, rows;
    bool gate_up;
    Options options;
  };
  const Shape shapes[] = {
      {64, 64, 16, false, {.out_dtype = DType::kBF16}},
      {100, 200, 31, true, {.bias = true}},
      {72, 1100, 64, false, {.bias = true, .residual = true, .out_dtype = DType::kBF16}},
      {200, 72, 128, false, {.bias = true, .residual = true}},
      {72, 328, 256, true, {.gap = 8}},
      // Few multiprocessors: larger tiles.
      {130,
       520,
       300,
       false,
       {.bias = true, .out_dtype = DType::kF16, .gap = 24, .offset = 8, .multiprocessors = 4}},
      {1100, 8, 257, false, {.residual = true, .multiprocessors = 8}},
      {300, 136, 270, true, {.bias = true, .residual = true, .out_dtype = DType::kBF16}},
  };
  for (const Shape& shape : shapes) {
    const DType dtype = shape.options.out_dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
    const LinearCase c(dtype, shape.n, shape.k, shape.gate_up, random_);
    expect_close(c, shape.rows, shape.options);
  }
}

// A row's bits: alone, among others, in every kernel there is for so many.
TEST_P(Linear, RowsDoNotDependOnTheirCompany) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {72, 1088}) {
      const LinearCase c(dtype, 72, k, true, random_);
      for (const bool silu : {false, true}) {
        const Options o{.bias = true, .gate_mul = silu, .out_dtype = dtype};
        const auto row = random_.uniforms(dtype, k);
        const auto want = c.run(row, o).values();
        for (const int64_t rows : {2, 9, 20, 33, 66, 129, 257}) {
          if (rows > 70 && k > 600) continue;
          auto x = random_.uniforms(dtype, rows * k);
          const int64_t place = random_.integer(0, rows - 1);
          std::copy(row.begin(), row.end(), x.begin() + place * k);
          for (const bool plain : {false, true}) {
            Options other = o;
            other.plain = plain;
            const DeviceMatrix got = c.run(x, other);
            for (int64_t j = 0; j < got.cols(); ++j) {
              ASSERT_EQ(got.at(place, j), want[size_t(j)])
                  << rows << " rows, k " << k << (plain ? ", without wgmma" : "");
            }
          }
        }
      }
    }
  }
}

// Tiles and clusters that the rows and features don't fill, in turn on few multiprocessors. The
// residual is added in place: a row that two tiles wrote would have it twice.
TEST_P(Linear, EveryPlanGivesTheBitsOfTilesByMma) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no wgmma";
  SCOPED_TRACE(random_.trace());
  const int64_t sizes[][2] = {{65, 72}, {150, 230}, {257, 72}};
  for (const auto& [rows, features] : sizes) {
    const LinearCase c(DType::kBF16, features, 40, false, random_);
    const auto x = random_.uniforms(DType::kBF16, rows * c.layout().k);
    const auto residual = random_.uniforms(DType::kBF16, rows * c.layout().n);
    Options o{.bias = true, .out_dtype = DType::kBF16, .multiprocessors = 4, .plain = true};
    const auto want = c.run_in_place(x, o, residual).values();
    o.plain = false;
    for (const LinearPlan& plan : linear_plans()) {
      o.plan = plan;
      ASSERT_EQ(c.run_in_place(x, o, residual).values(), want)
          << rows << " rows, " << plan.tokens << " x " << plan.features << " in clusters of "
          << plan.cluster.tokens << " x " << plan.cluster.features;
    }
  }
}

// The stages' ring goes round and round, and results leave as float32 and through SiLU.
TEST_P(Linear, PlansGiveTheBitsOfTilesByMmaForMuchK) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no wgmma";
  SCOPED_TRACE(random_.trace());
  const LinearCase c(DType::kF16, 80, 840, true, random_);
  const auto x = random_.uniforms(DType::kF16, 70 * c.layout().k);
  for (const LinearPlan& plan : {LinearPlan{true, 64, 64, {2, 2}},
                                 {true, 128, 64, {1, 2}},
                                 {false, 128, 128, {2, 1}},
                                 {false, 128, 224, {1, 2}}}) {
    Options o{.gate_mul = plan.features == 128 || plan.tokens == 64, .multiprocessors = 8};
    if (o.gate_mul) o.out_dtype = DType::kF16;
    o.plain = true;
    const auto want = c.run(x, o).values();
    o.plain = false;
    o.plan = plan;
    ASSERT_EQ(c.run(x, o).values(), want) << plan.tokens << " x " << plan.features;
  }
}

TEST_P(Linear, GatedOutputHasTheBitsOfTheSeparateOps) {
  for (const DType dtype : kDTypes) {
    const LinearCase c(dtype, 72, 136, true, random_);
    for (const int64_t rows : {3, 12, 30, 40, 260}) {
      const auto x = random_.uniforms(dtype, rows * 136);
      const Options separate{.bias = true, .out_dtype = dtype};
      Options fused = separate;
      fused.gate_mul = true;
      const DeviceMatrix gate_up = c.run(x, separate), want(dtype, rows, 36);
      for (const GateSpec& gate : kGates) {
        gate_mul({dtype, gate_up.matrix(), want.matrix(), gate}, nullptr);
        fused.gate = gate;
        ASSERT_EQ(c.run(x, fused).values(), want.values()) << rows;
      }
    }
  }
}

// NaN in one row stays there; what lies behind k in x doesn't matter (it is NaN in every case above
// with a gap).
TEST_P(Linear, RowsKeepTheirNanToThemselves) {
  const LinearCase c(DType::kF16, 16, 80, false, random_);
  for (const int64_t rows : {4, 40, 257}) {
    auto x = random_.uniforms(DType::kF16, rows * 80);
    x[80 + 7] = std::nanf("");
    const DeviceMatrix got = c.run(x, {});
    for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(got.at(i, 3)), i == 1) << i;
  }
}

TEST(WeightLayout, GateAndUpAlternateInGroupsOfEight) {
  const WeightLayout layout{40, 100, true};
  EXPECT_EQ(layout.stride(), 128);
  EXPECT_EQ(layout.stored_rows(), 64);
  EXPECT_EQ(layout.stored_row(0), 0);
  EXPECT_EQ(layout.stored_row(8), 16);
  EXPECT_EQ(layout.stored_row(19), 35);
  EXPECT_EQ(layout.stored_row(20), 8);
  EXPECT_EQ(layout.stored_row(39), 43);
}

HEADRACE_KERNEL_TESTS(Linear);

}  // namespace
}  // namespace headrace::cuda
