// The experts of a layer, in the emulation, against plain loops, against linear() of one expert,
// and against themselves in other company.

#include "cuda/kernels/experts/experts.h"

#include <cmath>
#include <optional>

#include "cuda/kernels/linear/linear.h"
#include "parity/gates.h"
#include "random_ids.h"

namespace headrace::cuda {
namespace {

class ExpertKernels : public KernelTest {
 protected:
  Random random_{61};
};

struct Layer {
  Layer(DType of, int64_t count, int64_t hidden, int64_t inner, Random& random)
      : dtype(of),
        experts(count),
        gate_up{2 * inner, hidden, true},
        down{hidden, inner, false},
        gate_up_numbers(random.uniforms(of, count * 2 * inner * hidden)),
        down_numbers(random.uniforms(of, count * hidden * inner)),
        gate_up_data(stored(gate_up, gate_up_numbers)),
        down_data(stored(down, down_numbers)),
        gate_up_bias(of, count, 2 * inner, random.uniforms(of, count * 2 * inner)),
        down_bias(of, count, hidden, random.uniforms(of, count * hidden)) {}

  ExpertsShape shape(int64_t rows, int64_t top_k) const {
    return {.dtype = dtype,
            .rows = rows,
            .top_k = top_k,
            .experts = experts,
            .gate_up = gate_up,
            .down = down};
  }
  /// Expert e's part of gate_up_data or down_data.
  const void* part(const DeviceMatrix& data, const WeightLayout& layout, int64_t e) const {
    return static_cast<const char*>(data.data()) +
           static_cast<size_t>(e * layout.elements()) * dtype_size(dtype);
  }

  const void* bias(const DeviceMatrix& all, int64_t e) const {
    return static_cast<const char*>(all.data()) +
           static_cast<size_t>(e * all.cols()) * dtype_size(dtype);
  }

  DType dtype;
  int64_t experts;
  WeightLayout gate_up, down;
  std::vector<float> gate_up_numbers, down_numbers;
  DeviceMatrix gate_up_data, down_data;
  DeviceMatrix gate_up_bias, down_bias;  ///< where `biases` says so
  bool biases = false;
  GateSpec gate = {};

 private:
  DeviceMatrix stored(const WeightLayout& layout, const std::vector<float>& numbers) const {
    const int64_t rows = experts * layout.stored_rows();
    DeviceMatrix out(dtype, rows, layout.stride(),
                     std::vector<float>(static_cast<size_t>(rows * layout.stride())));
    for (int64_t i = 0; i < experts * layout.n; ++i) {
      const int64_t row = i / layout.n * layout.stored_rows() + layout.stored_row(i % layout.n);
      for (int64_t j = 0; j < layout.k; ++j) out.set(row, j, numbers[size_t(i * layout.k + j)]);
    }
    return out;
  }
};

struct Choices {
  int64_t top_k;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

struct RunOptions {
  int64_t most_pair_bytes = ExpertsShape{}.most_pair_bytes;
  std::optional<int32_t> used = {};
  int64_t gap = 0;
};

std::vector<float> run_experts(const Layer& layer, const std::vector<float>& x, const Choices& c,
                               const RunOptions& o = {}) {
  const int64_t rows = static_cast<int64_t>(c.ids.size()) / c.top_k, hidden = layer.down.n;
  ExpertsShape shape = layer.shape(rows, c.top_k);
  shape.most_pair_bytes = o.most_pair_bytes;
  const DeviceMatrix in(layer.dtype, rows, hidden, x, o.gap), out(layer.dtype, rows, hidden, o.gap);
  const DeviceArray<int32_t> ids(c.ids), used = {o.used.value_or(0)};
  const DeviceArray<float> weights(c.weights);
  const DeviceArray<char> workspace(experts_workspace_bytes(shape));
  experts({.shape = shape,
           .x = in.matrix(),
           .ids = ids.data(),
           .ids_stride = c.top_k,
           .weights = weights.data(),
           .weights_stride = c.top_k,
           .gate_up = layer.gate_up_data.data(),
           .down = layer.down_data.data(),
           .gate_up_bias = layer.biases ? layer.gate_up_bias.data() : nullptr,
           .down_bias = layer.biases ? layer.down_bias.data() : nullptr,
           .gate = layer.gate,
           .used_rows = o.used ? used.data() : nullptr,
           .workspace = workspace.data(),
           .out = out.matrix()},
          nullptr);
  return out.values();
}

/// What expert e gives for one row, by linears of its own.
std::vector<float> by_linears(const Layer& layer, int64_t e, const std::vector<float>& row) {
  const DeviceMatrix x(layer.dtype, 1, layer.down.n, row), inner(layer.dtype, 1, layer.down.k);
  const DeviceMatrix out(layer.dtype, 1, layer.down.n);
  LinearArgs args;
  args.dtype = args.out_dtype = layer.dtype;
  args.x = x.matrix();
  args.weight = layer.part(layer.gate_up_data, layer.gate_up, e);
  args.layout = layer.gate_up;
  args.gate_mul = true;
  args.gate = layer.gate;
  if (layer.biases) args.bias = layer.bias(layer.gate_up_bias, e);
  args.out = inner.matrix();
  linear(args, nullptr);
  args.x = inner.matrix();
  args.weight = layer.part(layer.down_data, layer.down, e);
  args.layout = layer.down;
  args.gate_mul = false;
  if (layer.biases) args.bias = layer.bias(layer.down_bias, e);
  args.out = out.matrix();
  linear(args, nullptr);
  return out.values();
}

std::vector<float> row_of(const std::vector<float>& all, int64_t row, int64_t cols) {
  return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
}

/// The bits that every row must have: a chain over its experts' own linears.
std::vector<float> expected(const Layer& layer, const std::vector<float>& x, const Choices& c,
                            int64_t row) {
  const int64_t hidden = layer.down.n;
  std::vector<float> sums(static_cast<size_t>(hidden));
  for (int64_t slot = 0; slot < c.top_k; ++slot) {
    const auto at = static_cast<size_t>(row * c.top_k + slot);
    const auto y = by_linears(layer, c.ids[at], row_of(x, row, hidden));
    for (size_t j = 0; j < sums.size(); ++j) sums[j] = std::fma(c.weights[at], y[j], sums[j]);
  }
  for (float& sum : sums) sum = round_to_dtype(layer.dtype, sum);
  return sums;
}

// Rows for each kernel: tiles of 8, 16, 64 and 128 rows, of 32 in float32. Nothing divides by a
// tile. All gates, with biases and without.
TEST_P(ExpertKernels, RowsHaveTheBitsOfTheirExpertsLinears) {
  SCOPED_TRACE(random_.trace());
  struct Case {
    int64_t experts, hidden, inner, top_k, rows;
  };
  const Case cases[] = {{1, 1, 1, 1, 3},      {4, 72, 40, 2, 8},   {9, 66, 33, 3, 13},
                        {3, 130, 205, 2, 70}, {2, 80, 24, 1, 150}, {40, 16, 8, 5, 30}};
  for (const DType dtype : kDTypes) {
    for (const Case& k : cases) {
      SCOPED_TRACE(testing::Message()
                   << dtype_name(dtype) << ", " << k.rows << " rows, " << k.top_k << " of "
                   << k.experts << ": " << k.hidden << " x " << k.inner);
      Layer layer(dtype, k.experts, k.hidden, k.inner, random_);
      layer.gate = kGates[size_t(&k - cases) % std::size(kGates)];
      layer.biases = (&k - cases) % 3 != 0;
      const auto x = random_.uniforms(dtype, k.rows * k.hidden);
      const Choices c{k.top_k, random_ids(random_, k.rows, k.top_k, k.experts),
                      random_.uniforms(DType::kF32, k.rows * k.top_k)};
      const auto got = run_experts(layer, x, c);
      for (int64_t row = 0; row < k.rows; row += k.rows > 30 ? 7 : 1) {
        ASSERT_EQ(row_of(got, row, k.hidden), expected(layer, x, c, row)) << "row " << row;
      }
    }
  }
}

// A linear's sum of k products is off by one roundoff of float32 for each step of its chain
// (16-bit: one for each product of 16, see linear_test.cc), each result by one of the dtype more;
// silu(gate)
// * up by a few of float32. Errors of what lies between go through down and the weights, so that
// their magnitudes add up.
TEST_P(ExpertKernels, MatchDoubles) {
  SCOPED_TRACE(random_.trace());
  const int64_t experts = 6, hidden = 96, inner = 56, top_k = 3, rows = 11;
  for (const DType dtype : kDTypes) {
    const Layer layer(dtype, experts, hidden, inner, random_);
    const auto x = random_.uniforms(dtype, rows * hidden);
    const Choices c{top_k, random_ids(random_, rows, top_k, experts),
                    random_.uniforms(DType::kF32, rows * top_k)};
    const auto got = run_experts(layer, x, c);
    const double unit = roundoff(dtype);
    const auto steps = [&](int64_t k) {
      return (dtype == DType::kF32 ? double(k) : double(k) / 16 + 8) + 3;
    };
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> want(size_t(hidden), 0.0), bound(size_t(hidden), 0.0);
      for (int64_t slot = 0; slot < top_k; ++slot) {
        const auto at = static_cast<size_t>(row * top_k + slot);
        const int64_t e = c.ids[at];
        const auto product = [&](int64_t feature) {
          double sum = 0.0, size = 0.0;
          for (int64_t j = 0; j < hidden; ++j) {
            const double term =
                double(x[size_t(row * hidden + j)]) *
                double(layer.gate_up_numbers[size_t((e * 2 * inner + feature) * hidden + j)]);
            sum += term;
            size += std::abs(term);
          }
          return std::pair(sum, size * steps(hidden) * 0x1p-24 + std::abs(sum) * unit);
        };
        std::vector<double> between(size_t(inner), 0.0), errors(size_t(inner), 0.0);
        for (int64_t i = 0; i < inner; ++i) {
          const auto [gate, gate_error] = product(i);
          const auto [up, up_error] = product(inner + i);
          const double silu = gate / (1.0 + std::exp(-gate));
          between[size_t(i)] = silu * up;
          // silu's slope is at most 1.1.
          errors[size_t(i)] = 1.1 * gate_error * (std::abs(up) + up_error) +
                              std::abs(silu) * up_error +
                              std::abs(silu * up) * (unit + 8 * 0x1p-24);
        }
        for (int64_t j = 0; j < hidden; ++j) {
          double sum = 0.0, size = 0.0, error = 0.0;
          for (int64_t i = 0; i < inner; ++i) {
            const double weight = double(layer.down_numbers[size_t((e * hidden + j) * inner + i)]);
            sum += between[size_t(i)] * weight;
            size += std::abs(between[size_t(i)] * weight);
            error += errors[size_t(i)] * std::abs(weight);
          }
          error += (size + error) * steps(inner) * 0x1p-24 + (std::abs(sum) + error) * unit;
          const double weight = double(c.weights[at]);
          want[size_t(j)] += weight * sum;
          bound[size_t(j)] += std::abs(weight) * (error + (std::abs(sum) + error) * 4 * 0x1p-24);
        }
      }
      for (int64_t j = 0; j < hidden; ++j) {
        const double most =
            bound[size_t(j)] + (std::abs(want[size_t(j)]) + bound[size_t(j)]) * unit;
        ASSERT_NEAR(got[size_t(row * hidden + j)], want[size_t(j)], 1.01 * most)
            << dtype_name(dtype) << " row " << row << ", column " << j;
      }
    }
  }
}

// A row's bits: alone, among 20 (tiles of 16) and among 300 (tiles of 64 or 128).
TEST_P(ExpertKernels, RowsDoNotDependOnTheirCompany) {
  SCOPED_TRACE(random_.trace());
  const int64_t hidden = 72, inner = 24, top_k = 2;
  for (const DType dtype : kDTypes) {
    for (const int64_t experts : {3, 8}) {
      const Layer layer(dtype, experts, hidden, inner, random_);
      const auto row = random_.uniforms(dtype, hidden);
      const Choices own{top_k, random_ids(random_, 1, top_k, experts), {0.75f, -0.25f}};
      const auto want = run_experts(layer, row, own);
      for (const int64_t rows : {8, 20, 300}) {
        auto x = random_.uniforms(dtype, rows * hidden);
        Choices c{top_k, random_ids(random_, rows, top_k, experts),
                  random_.uniforms(DType::kF32, rows * top_k)};
        const int64_t place = random_.integer(0, rows - 1);
        std::copy(row.begin(), row.end(), x.begin() + place * hidden);
        std::copy(own.ids.begin(), own.ids.end(), c.ids.begin() + place * top_k);
        std::copy(own.weights.begin(), own.weights.end(), c.weights.begin() + place * top_k);
        ASSERT_EQ(row_of(run_experts(layer, x, c), place, hidden), want)
            << dtype_name(dtype) << ", " << rows << " rows, " << experts << " experts";
      }
    }
  }
}

TEST_P(ExpertKernels, PartsAndGapsDoNotShow) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Layer layer(dtype, 4, 48, 24, random_);
    const auto x = random_.uniforms(dtype, 37 * 48);
    const Choices c{2, random_ids(random_, 37, 2, 4), random_.uniforms(DType::kF32, 37 * 2)};
    const auto want = run_experts(layer, x, c);
    ExpertsShape one = layer.shape(37, 2);
    one.most_pair_bytes = 1;
    EXPECT_LT(experts_workspace_bytes(one), experts_workspace_bytes(layer.shape(37, 2)));
    EXPECT_EQ(run_experts(layer, x, c, {.most_pair_bytes = 1}), want);  // 16 rows at once
    EXPECT_EQ(run_experts(layer, x, c, {.gap = 3}), want);
  }
}

// The padding begins in the second of three parts of 16 rows, and is all of the third.
TEST_P(ExpertKernels, PaddingInParts) {
  SCOPED_TRACE(random_.trace());
  const Layer layer(DType::kBF16, 4, 48, 24, random_);
  const auto x = random_.uniforms(DType::kBF16, 37 * 48);
  const Choices c{2, random_ids(random_, 37, 2, 4), random_.uniforms(DType::kF32, 37 * 2)};
  auto want = run_experts(layer, x, c);
  std::fill(want.begin() + 21 * 48, want.end(), 0.0f);
  EXPECT_EQ(run_experts(layer, x, c, {.most_pair_bytes = 1, .used = 21}), want);
}

TEST_P(ExpertKernels, PaddingBecomesZeros) {
  const Layer layer(DType::kBF16, 4, 48, 24, random_);
  auto x = random_.uniforms(DType::kBF16, 8 * 48);
  Choices c{2, random_ids(random_, 8, 2, 4), random_.uniforms(DType::kF32, 16)};
  auto want = run_experts(layer, x, c);
  for (int64_t row = 5; row < 8; ++row) {
    std::fill_n(x.begin() + row * 48, 48, std::nanf(""));
    std::fill_n(c.ids.begin() + row * 2, 2, -(1 << 30));
    std::fill_n(c.weights.begin() + row * 2, 2, std::nanf(""));
    std::fill_n(want.begin() + row * 48, 48, 0.0f);
  }
  EXPECT_EQ(run_experts(layer, x, c, {.used = 5}), want);
}

TEST_P(ExpertKernels, ManySmallExpertsAndManyOfARow) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Layer layer(dtype, 1024, 8, 2, random_);
    const auto x = random_.uniforms(dtype, 3 * 8);
    const Choices c{64, random_ids(random_, 3, 64, 1024), random_.uniforms(DType::kF32, 3 * 64)};
    const auto got = run_experts(layer, x, c);
    for (int64_t row = 0; row < 3; ++row) {
      ASSERT_EQ(row_of(got, row, 8), expected(layer, x, c, row));
    }
  }
}

// NaN in a row stays there, whichever rows share its experts.
TEST_P(ExpertKernels, RowsKeepTheirNanToThemselves) {
  const Layer layer(DType::kBF16, 2, 40, 24, random_);
  for (const int64_t rows : {4, 12, 40}) {
    auto x = random_.uniforms(DType::kBF16, rows * 40);
    x[40 + 3] = std::nanf("");
    const Choices c{2, random_ids(random_, rows, 2, 2), random_.uniforms(DType::kF32, rows * 2)};
    const auto got = run_experts(layer, x, c);
    for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(got[size_t(i * 40)]), i == 1) << i;
  }
}

// Reserved memory must do for steps of fewer rows.
TEST(ExpertsWorkspace, GrowsWithRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t experts : {1, 8, 1024}) {
      ExpertsShape shape{.dtype = dtype,
                         .top_k = std::min<int64_t>(experts, 4),
                         .experts = experts,
                         .gate_up = {6, 5, true},
                         .down = {5, 3, false}};
      size_t last = experts_workspace_bytes(shape);
      EXPECT_EQ(last, 0u);
      for (shape.rows = 1; shape.rows < 3000; ++shape.rows) {
        const size_t bytes = experts_workspace_bytes(shape);
        ASSERT_GE(bytes, last) << shape.rows << " rows of " << experts << " experts";
        last = bytes;
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(ExpertKernels);

}  // namespace
}  // namespace headrace::cuda
