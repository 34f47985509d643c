// The experts of a layer whose weights are codes, in the emulation: rows have the bits of
// quant_linear() of their experts, whose sums quant_test.cc checks.

#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "parity/gates.h"
#include "random_ids.h"

namespace headrace::cuda {
namespace {

class ExpertQuantKernels : public KernelTest {
 protected:
  Random random_{67};
};

/// Experts' matrices of random codes, with scales that keep sums small; or of numbers.
class Weights {
 public:
  Weights(DType dtype, const WeightLayout& matrix, const QuantFormat& format, int64_t experts,
          Random& random)
      : layout_{matrix, format},
        bytes_(static_cast<size_t>(experts * (one(dtype) + (format.reordered ? matrix.k * 4 : 0)))),
        numbers_(dtype, format.bits == 0 ? experts * matrix.stored_rows() : 0, matrix.stride()) {
    for (int64_t e = 0; e < experts; ++e) {
      format.bits == 0 ? fill_numbers(e, random) : fill_codes(e, random);
    }
    one_ = one(dtype);
    if (format.reordered) make_orders(experts, random);
  }

  const WeightLayout& matrix() const { return layout_.matrix; }
  const QuantFormat& format() const { return layout_.format; }
  /// A row as expert e wants its inputs.
  std::vector<float> ordered(const std::vector<float>& row, int64_t e) const {
    if (!layout_.format.reordered) return row;
    std::vector<float> out;
    for (const int32_t from : orders_[size_t(e)]) out.push_back(row[size_t(from)]);
    return out;
  }
  /// Expert e's, with the following behind it.
  const void* data(int64_t e = 0) const {
    const bool numbers = layout_.format.bits == 0;
    return static_cast<const char*>(numbers ? numbers_.data() : bytes_.data()) + e * one_;
  }

 private:
  int64_t one(DType dtype) const {
    return layout_.format.bits == 0
               ? layout_.matrix.elements() * static_cast<int64_t>(dtype_size(dtype))
               : layout_.order_at();
  }
  void make_orders(int64_t experts, Random& random) {
    uint8_t* at = bytes_.data() + layout_.order_at(experts);
    for (int64_t e = 0; e < experts; ++e, at += layout_.matrix.k * 4) {
      std::vector<int32_t>& order = orders_.emplace_back(static_cast<size_t>(layout_.matrix.k));
      std::iota(order.begin(), order.end(), 0);
      for (size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[size_t(random.integer(0, static_cast<int64_t>(i) - 1))]);
      }
      std::memcpy(at, order.data(), order.size() * 4);
    }
  }
  void fill_numbers(int64_t e, Random& random) {
    const WeightLayout& m = layout_.matrix;
    for (int64_t i = 0; i < m.stored_rows(); ++i) {
      for (int64_t j = 0; j < m.stride(); ++j) {
        const bool exists = j < m.k && i < m.n;
        numbers_.set(e * m.stored_rows() + i, j, exists ? random.uniform(-1.0f, 1.0f) : 0.0f);
      }
    }
  }
  void fill_codes(int64_t e, Random& random) {
    uint8_t* at = bytes_.data() + e * layout_.order_at();
    if (rounds_rows(layout_.format)) return fill_rounded(at, random);
    for (int64_t tile = 0; tile < layout_.tiles(); ++tile, at += layout_.tile_bytes()) {
      for (int64_t i = 0; i < layout_.scales_at(); ++i) {
        at[i] = static_cast<uint8_t>(random.integer(0, 255));
      }
      for (int64_t i = 0; i < layout_.groups() * kQuantTile; ++i) {
        const float scale = random.uniform(0.001f, 0.01f);
        const uint16_t bits = layout_.format.f16_scales ? f32_to_f16(scale) : f32_to_bf16(scale);
        std::memcpy(at + layout_.scales_at() + 2 * i, &bits, 2);
        if (!layout_.format.zero_points) continue;
        at[layout_.zeros_at() + i] =
            static_cast<uint8_t>(random.integer(0, layout_.format.bits == 8 ? 255 : 16));
      }
    }
  }

  void fill_rounded(uint8_t* at, Random& random) {
    for (int64_t tile = 0; tile < layout_.tiles(); ++tile, at += layout_.tile_bytes()) {
      for (int64_t i = 0; i < layout_.scales_at(); ++i) {
        const auto code = static_cast<uint8_t>(random.integer(0, 255));
        const bool is_nan = has_float8(layout_.format) && (code & 0x7f) == 0x7f;
        at[i] = is_nan ? 0 : code;
      }
      for (int64_t i = 0; i < layout_.groups() * kQuantTile; ++i) {
        const float scale = random.uniform(0.0001f, 0.001f);
        std::memcpy(at + layout_.scales_at() + 4 * i, &scale, 4);
      }
    }
  }

  QuantLayout layout_;
  DeviceArray<uint8_t> bytes_;
  DeviceMatrix numbers_;
  std::vector<std::vector<int32_t>> orders_;  ///< of a reordered format, by expert
  int64_t one_ = 0;
};

struct Layer {
  Layer(DType of, int64_t count, int64_t hidden, int64_t inner, const QuantFormat& first,
        const QuantFormat& second, Random& random)
      : dtype(of),
        experts(count),
        gate_up(of, {2 * inner, hidden, true}, first, count, random),
        down(of, {hidden, inner, false}, second, count, random),
        gate(kGates[size_t(count) % std::size(kGates)]),
        biases(inner % 3 != 0),
        gate_up_bias(of, count, 2 * inner, random.uniforms(of, count * 2 * inner)),
        down_bias(of, count, hidden, random.uniforms(of, count * hidden)) {}

  int64_t hidden() const { return down.matrix().n; }
  /// Expert e's, with the following behind it; null: the layer has none.
  const void* bias(const DeviceMatrix& all, int64_t e = 0) const {
    if (!biases) return nullptr;
    return static_cast<const char*>(all.data()) +
           static_cast<size_t>(e * all.cols()) * dtype_size(dtype);
  }

  DType dtype;
  int64_t experts;
  Weights gate_up, down;
  GateSpec gate;
  bool biases;
  DeviceMatrix gate_up_bias, down_bias;
};

struct Choices {
  int64_t top_k;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  static Choices random(Random& random, int64_t rows, int64_t top_k, int64_t experts) {
    return {top_k, random_ids(random, rows, top_k, experts),
            random.uniforms(DType::kF32, rows * top_k)};
  }
};

std::vector<float> run_experts(const Layer& layer, const std::vector<float>& x, const Choices& c,
                               int64_t gap = 0, std::optional<int32_t> used = {},
                               int64_t most_pair_bytes = int64_t{256} << 20) {
  const int64_t rows = static_cast<int64_t>(c.ids.size()) / c.top_k;
  const ExpertsShape shape{.dtype = layer.dtype,
                           .rows = rows,
                           .top_k = c.top_k,
                           .experts = layer.experts,
                           .gate_up = layer.gate_up.matrix(),
                           .down = layer.down.matrix(),
                           .gate_up_quant = layer.gate_up.format(),
                           .down_quant = layer.down.format(),
                           .most_pair_bytes = most_pair_bytes};
  const DeviceMatrix in(layer.dtype, rows, layer.hidden(), x, gap);
  const DeviceMatrix out(layer.dtype, rows, layer.hidden(), gap);
  const DeviceArray<int32_t> ids(c.ids), used_rows = {used.value_or(0)};
  const DeviceArray<float> weights(c.weights);
  const DeviceArray<char> workspace(experts_workspace_bytes(shape));
  experts({.shape = shape,
           .x = in.matrix(),
           .ids = ids.data(),
           .ids_stride = c.top_k,
           .weights = weights.data(),
           .weights_stride = c.top_k,
           .gate_up = layer.gate_up.data(),
           .down = layer.down.data(),
           .gate_up_bias = layer.bias(layer.gate_up_bias),
           .down_bias = layer.bias(layer.down_bias),
           .gate = layer.gate,
           .used_rows = used ? used_rows.data() : nullptr,
           .workspace = workspace.data(),
           .out = out.matrix()},
          nullptr);
  return out.values();
}

void multiply(const Layer& layer, const Weights& weights, int64_t e, const DeviceMatrix& x,
              bool gate_mul, const DeviceMatrix& out) {
  const LinearArgs args{.dtype = layer.dtype,
                        .x = x.matrix(),
                        .weight = weights.data(e),
                        .layout = weights.matrix(),
                        .bias = layer.bias(gate_mul ? layer.gate_up_bias : layer.down_bias, e),
                        .gate_mul = gate_mul,
                        .gate = layer.gate,
                        .out_dtype = layer.dtype,
                        .out = out.matrix()};
  if (weights.format().bits == 0) return linear(args, nullptr);
  QuantFormat in_order = weights.format();
  in_order.reordered = false;
  const RoundedRows rows({weights.matrix(), in_order}, x.rows());
  const DeviceArray<uint8_t> rounded(rounds_rows(in_order) ? static_cast<size_t>(rows.bytes()) : 0);
  quant_linear({.linear = args, .format = in_order, .rounded = rounded.data()}, nullptr);
}

std::vector<float> row_of(const std::vector<float>& all, int64_t row, int64_t cols) {
  return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
}

/// The bits that a row must have: a chain over its experts' own linears.
std::vector<float> expected(const Layer& layer, const std::vector<float>& x, const Choices& c,
                            int64_t row) {
  const DeviceMatrix inner(layer.dtype, 1, layer.down.matrix().k);
  const DeviceMatrix out(layer.dtype, 1, layer.hidden());
  std::vector<float> sums(static_cast<size_t>(layer.hidden()));
  for (int64_t slot = 0; slot < c.top_k; ++slot) {
    const auto at = static_cast<size_t>(row * c.top_k + slot);
    const DeviceMatrix own(layer.dtype, 1, layer.hidden(),
                           layer.gate_up.ordered(row_of(x, row, layer.hidden()), c.ids[at]));
    multiply(layer, layer.gate_up, c.ids[at], own, true, inner);
    multiply(layer, layer.down, c.ids[at], inner, false, out);
    for (size_t j = 0; j < sums.size(); ++j) {
      sums[j] = std::fma(c.weights[at], out.at(0, static_cast<int64_t>(j)), sums[j]);
    }
  }
  for (float& sum : sums) sum = round_to_dtype(layer.dtype, sum);
  return sums;
}

constexpr QuantFormat kPlain = {};
constexpr QuantFormat codes(int32_t bits, int32_t group_size, bool zero_points, bool f16_scales) {
  return {.bits = bits,
          .group_size = group_size,
          .zero_points = zero_points,
          .f16_scales = f16_scales,
          .activations = Activations::kWhole};
}
constexpr QuantFormat kFormats[] = {
    codes(4, 32, true, false),  codes(4, 64, false, true), codes(4, 128, false, false),
    codes(8, 32, false, false), codes(8, 64, true, true),  codes(8, 128, true, false),
};

constexpr QuantFormat rounded(Activations kind) {
  return {.bits = 8, .group_size = 128, .activations = kind};
}
constexpr QuantFormat kRounded[] = {rounded(Activations::kInt8Rows),
                                    rounded(Activations::kFloat8Rows),
                                    rounded(Activations::kFloat8Groups)};

std::string trace(const QuantFormat& f) {
  if (rounds_rows(f)) return "rounded, kind " + std::to_string(static_cast<int>(f.activations));
  return "int" + std::to_string(f.bits) + " by " + std::to_string(f.group_size);
}

// Rows for tiles of 8, 16 and 64, in float32 of 32; k for slices of none, one and some units.
// Nothing divides by a tile.
TEST_P(ExpertQuantKernels, RowsHaveTheBitsOfTheirExpertsLinears) {
  SCOPED_TRACE(random_.trace());
  struct Case {
    int64_t experts, hidden, inner, top_k, rows;
  };
  const Case cases[] = {{1, 1, 1, 1, 3},
                        {4, 72, 40, 2, 8},
                        {9, 66, 33, 3, 13},
                        {3, 1060, 205, 2, 37},
                        {2, 80, 24, 1, 150}};
  for (const DType dtype : kDTypes) {
    for (const QuantFormat& format : kFormats) {
      for (const Case& k : cases) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << trace(format) << ", "
                                        << k.rows << " rows of " << k.hidden << " x " << k.inner);
        const bool large = k.hidden > 1000, some = dtype == DType::kBF16 && format.group_size == 64;
        if (large && !(some && GetParam() == first_schedule())) continue;
        const Layer layer(dtype, k.experts, k.hidden, k.inner, format, format, random_);
        const auto x = random_.uniforms(dtype, k.rows * k.hidden);
        const Choices c = Choices::random(random_, k.rows, k.top_k, k.experts);
        const auto got = run_experts(layer, x, c);
        for (int64_t row = 0; row < k.rows; row += k.rows > 20 ? 13 : 3) {
          ASSERT_EQ(row_of(got, row, k.hidden), expected(layer, x, c, row)) << "row " << row;
        }
      }
    }
  }
}

// The same of codes that meet codes, whose rows are rounded once for all of their experts.
TEST_P(ExpertQuantKernels, RoundedRowsHaveTheBitsOfTheirExpertsLinears) {
  SCOPED_TRACE(random_.trace());
  struct Case {
    int64_t experts, hidden, inner, top_k, rows;
  };
  const Case cases[] = {{1, 1, 1, 1, 3},
                        {4, 140, 72, 2, 8},
                        {9, 66, 33, 3, 13},
                        {3, 1060, 205, 2, 37},
                        {2, 272, 136, 1, 90}};
  for (const DType dtype : kDTypes) {
    for (const QuantFormat& format : kRounded) {
      for (const Case& k : cases) {
        SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << trace(format) << ", "
                                        << k.rows << " rows of " << k.hidden << " x " << k.inner);
        if (k.hidden > 1000 && !(dtype == DType::kBF16 && GetParam() == 0)) continue;
        const Layer layer(dtype, k.experts, k.hidden, k.inner, format, format, random_);
        const auto x = random_.uniforms(dtype, k.rows * k.hidden);
        const Choices c = Choices::random(random_, k.rows, k.top_k, k.experts);
        const auto got = run_experts(layer, x, c);
        for (int64_t row = 0; row < k.rows; row += k.rows > 20 ? 13 : 3) {
          ASSERT_EQ(row_of(got, row, k.hidden), expected(layer, x, c, row)) << "row " << row;
        }
      }
    }
  }
}

// A checkpoint may leave some matrices as they are.
TEST_P(ExpertQuantKernels, OneOfTheTwoIsOfNumbers) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : kDTypes) {
    for (const bool first : {false, true}) {
      for (const int64_t rows : {5, 12, 70}) {
        const bool round = rows != 12;
        const QuantFormat& format = round ? kRounded[first ? 1 : 2] : kFormats[first ? 0 : 4];
        const Layer layer(dtype, 3, 72, 40, first ? format : kPlain, first ? kPlain : format,
                          random_);
        const auto x = random_.uniforms(dtype, rows * 72);
        const Choices c = Choices::random(random_, rows, 2, 3);
        const auto got = run_experts(layer, x, c);
        for (int64_t row = 0; row < rows; row += 4) {
          ASSERT_EQ(row_of(got, row, 72), expected(layer, x, c, row)) << row << " of " << rows;
        }
      }
    }
  }
}

// Each expert's inputs have an order of their own; where the rows are many, they come in parts.
TEST_P(ExpertQuantKernels, OrdersOfInputs) {
  SCOPED_TRACE(random_.trace());
  QuantFormat reordered = kFormats[0];
  reordered.reordered = true;
  for (const DType dtype : kDTypes) {
    const Layer layer(dtype, 3, 300, 40, reordered, kFormats[0], random_);
    for (const int64_t rows : {3, 12, 70}) {
      const auto x = random_.uniforms(dtype, rows * 300);
      const Choices c = Choices::random(random_, rows, 2, 3);
      const auto got = run_experts(layer, x, c);
      EXPECT_EQ(run_experts(layer, x, c, 3, {}, rows * 100), got);
      for (int64_t row = 0; row < rows; row += 4) {
        ASSERT_EQ(row_of(got, row, 300), expected(layer, x, c, row)) << row << " of " << rows;
      }
    }
  }
}

TEST_P(ExpertQuantKernels, GapsAndPaddingDoNotShow) {
  SCOPED_TRACE(random_.trace());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {7, 16, 90}) {
      const bool round = rows != 16;
      const Layer layer(dtype, 4, 48, 24, round ? kRounded[2] : kFormats[0],
                        round ? kRounded[1] : kFormats[3], random_);
      auto x = random_.uniforms(dtype, rows * 48);
      Choices c = Choices::random(random_, rows, 2, 4);
      auto want = run_experts(layer, x, c);
      EXPECT_EQ(run_experts(layer, x, c, 3), want);
      const int64_t used = rows - 3;
      std::fill(x.begin() + used * 48, x.end(), std::nanf(""));
      std::fill(c.ids.begin() + used * 2, c.ids.end(), -(1 << 30));
      std::fill(want.begin() + used * 48, want.end(), 0.0f);
      EXPECT_EQ(run_experts(layer, x, c, 0, static_cast<int32_t>(used)), want);
    }
  }
}

// NaN in a row stays there, whichever rows share its experts.
TEST_P(ExpertQuantKernels, RowsKeepTheirNanToThemselves) {
  for (const int64_t rows : {4, 12, 40}) {
    const QuantFormat& format = rows == 12 ? kFormats[0] : kRounded[rows == 4 ? 1 : 2];
    const Layer layer(DType::kBF16, 2, 40, 24, format, format, random_);
    auto x = random_.uniforms(DType::kBF16, rows * 40);
    x[40 + 3] = std::nanf("");
    const auto got = run_experts(layer, x, Choices::random(random_, rows, 2, 2));
    for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(got[size_t(i * 40)]), i == 1) << i;
  }
}

HEADRACE_KERNEL_TESTS(ExpertQuantKernels);

}  // namespace
}  // namespace headrace::cuda
