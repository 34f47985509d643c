// quant_linear() and quant_embed() in the emulation, against sums in double, and against themselves
// in other company.

#include <cmath>
#include <numeric>

#include "cuda/kernels/elementwise/gate_mul.h"
#include "cuda/kernels/quant/quant_embed.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "device_data.h"
#include "parity/gates.h"

namespace headrace::cuda {
namespace {

struct Options {
  bool bias = false, residual = false, gate_mul = false;
  DType out_dtype = DType::kF32;
  int64_t gap = 0, offset = 0;  // of x, in elements
  int32_t multiprocessors = 132;
  bool tiles = false;  // by quant_linear_tiles, however few rows
  bool wgmma = false;  // by quant_linear_wgmma, however few rows
  GateSpec gate{};
};

/// A random weight, and what it means.
class QuantCase {
 public:
  QuantCase(DType dtype, const QuantFormat& format, int64_t n, int64_t k, bool gate_up,
            Random& random)
      : dtype_(dtype),
        layout_{{n, k, gate_up}, format},
        weights_(static_cast<size_t>(n * k)),
        bias_(random.uniforms(dtype, n)),
        stored_(std::vector<uint8_t>(static_cast<size_t>(layout_.bytes()))),
        bias_data_(dtype, 1, n, bias_),
        order_(static_cast<size_t>(k)) {
    std::iota(order_.begin(), order_.end(), 0);
    if (format.reordered) {
      for (int64_t i = k - 1; i > 0; --i) {
        std::swap(order_[size_t(i)], order_[size_t(random.integer(0, i))]);
      }
      std::memcpy(stored_.data() + layout_.order_at(), order_.data(), order_.size() * 4);
    }
    for (int64_t i = 0; i < n; ++i) fill_row(i, random);
  }

  float weight(int64_t i, int64_t j) const {
    return weights_[static_cast<size_t>(i * layout_.matrix.k + j)];
  }

  DeviceMatrix run(const std::vector<float>& x, const Options& o,
                   const std::vector<float>& residual = {}) const {
    const int64_t k = layout_.matrix.k, rows = static_cast<int64_t>(x.size()) / k;
    const int64_t cols = o.gate_mul ? layout_.matrix.n / 2 : layout_.matrix.n;
    const DeviceMatrix in(dtype_, rows, k, x, o.gap, o.offset);
    DeviceMatrix out(o.out_dtype, rows, cols, 3);
    const DeviceMatrix add(dtype_, rows, cols,
                           o.residual ? residual : std::vector<float>(size_t(rows * cols)));
    const DeviceMatrix ordered(dtype_, std::min(rows, kMostReorderedRows), layout_.matrix.stride());
    QuantLinearArgs args{.linear = {.dtype = dtype_,
                                    .x = in.matrix(),
                                    .weight = stored_.data(),
                                    .layout = layout_.matrix,
                                    .gate_mul = o.gate_mul,
                                    .gate = o.gate,
                                    .out_dtype = o.out_dtype,
                                    .out = out.matrix(),
                                    .multiprocessors = o.multiprocessors,
                                    .has_wgmma = o.wgmma},
                         .format = layout_.format};
    if (o.bias) args.linear.bias = bias_data_.data();
    if (o.residual) args.linear.residual = add.matrix();
    if (layout_.format.reordered) args.reordered = ordered.data();
    if (o.wgmma) {
      EXPECT_TRUE(quant_can_use_wgmma(args));
      quant_linear_wgmma(args, nullptr);
    } else {
      (o.tiles ? quant_linear_tiles : quant_linear)(args, nullptr);
    }
    return out;
  }

  /// Sum and sum of absolute values of a row's products with a feature, with the bias.
  std::pair<double, double> exact(const std::vector<float>& x, int64_t row, int64_t feature,
                                  bool bias) const {
    double sum = bias ? double(bias_[size_t(feature)]) : 0.0, size = std::abs(sum);
    for (int64_t j = 0; j < layout_.matrix.k; ++j) {
      const double term =
          double(x[size_t(row * layout_.matrix.k + j)]) * double(weight(feature, j));
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  /// float32: a roundoff for each step of the chain. 16-bit: codes are exact; one for each product
  /// of 16 k (two of a GPU's tensor core, which truncates), two for each group, one for each slice.
  double bound(double size) const {
    const double k = double(layout_.units() * kQuantUnit);
    const double steps =
        dtype_ == DType::kF32 ? k : k / 8 + 2 * double(layout_.groups()) + kQuantSlices;
    return size * (steps + 3) * 0x1p-24;
  }

  const QuantLayout& layout() const { return layout_; }
  const std::vector<int32_t>& order() const { return order_; }
  DType dtype() const { return dtype_; }
  const uint8_t* data() const { return stored_.data(); }

 private:
  void fill_row(int64_t i, Random& random) {
    const QuantFormat& format = layout_.format;
    const int64_t stored = layout_.matrix.stored_row(i), k = layout_.matrix.k;
    const int row = static_cast<int>(stored % kQuantTile);
    uint8_t* const tile = stored_.data() + stored / kQuantTile * layout_.tile_bytes();
    const int64_t top = format.bits == 8 ? 255 : 15;
    for (int64_t group = 0; group * format.group_size < k; ++group) {
      const float wide = random.uniform(0.001f, 0.01f);
      const uint16_t bits = format.f16_scales ? f32_to_f16(wide) : f32_to_bf16(wide);
      const float scale = format.f16_scales ? f16_to_f32(bits) : bf16_to_f32(bits);
      // 16 is what a zero point of four bits may be that was stored one less than it is.
      const int64_t zero = format.zero_points ? random.integer(0, format.bits == 8 ? 255 : 16)
                                              : int64_t{quant_zero(format.bits)};
      const int64_t pair = group * kQuantTile + pair_place(row);
      std::memcpy(tile + layout_.scales_at() + pair * 2, &bits, 2);
      if (format.zero_points) tile[layout_.zeros_at() + pair] = static_cast<uint8_t>(zero);
      const int64_t end = std::min(k, (group + 1) * format.group_size);
      for (int64_t j = group * format.group_size; j < end; ++j) {
        const int64_t code = random.integer(0, top);
        const CodePlace place = code_place(format.bits, row, j);
        tile[place.byte] = static_cast<uint8_t>(tile[place.byte] | code << place.bit);
        weights_[size_t(i * k + order_[size_t(j)])] = scale * static_cast<float>(code - zero);
      }
    }
  }

  DType dtype_;
  QuantLayout layout_;
  std::vector<float> weights_, bias_;
  DeviceArray<uint8_t> stored_;
  DeviceMatrix bias_data_;
  std::vector<int32_t> order_;
};

std::vector<QuantFormat> formats() {
  std::vector<QuantFormat> out;
  for (const int32_t bits : {4, 8}) {
    for (const int32_t size : {32, 64, 128}) {
      const bool odd = size == 64;
      out.push_back({.bits = bits,
                     .group_size = size,
                     .zero_points = odd,
                     .f16_scales = size == 128,
                     .reordered = odd && bits == 4,
                     .activations = Activations::kWhole});
      out.push_back(out.back());
      out.back().zero_points = !odd;
      out.back().f16_scales = size != 128;
    }
  }
  return out;
}

std::string trace(const QuantFormat& f) {
  return "int" + std::to_string(f.bits) + " by " + std::to_string(f.group_size) +
         (f.zero_points ? " with zeros" : "") + (f.reordered ? " reordered" : "");
}

class QuantLinear : public KernelTest {
 protected:
  void expect_close(const QuantCase& c, int64_t rows, const Options& o) {
    const int64_t k = c.layout().matrix.k, n = c.layout().matrix.n;
    const auto x = random_.uniforms(c.dtype(), rows * k);
    const auto residual = random_.uniforms(c.dtype(), rows * n);
    const DeviceMatrix got = c.run(x, o, residual);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        auto [want, size] = c.exact(x, i, j, o.bias);
        double bound = c.bound(size);
        if (o.residual) {  // which is added to the rounded sum
          bound += (std::abs(want) + bound) * roundoff(o.out_dtype);
          want += double(residual[size_t(i * n + j)]);
        }
        bound += (std::abs(want) + bound) * roundoff(o.out_dtype);
        ASSERT_NEAR(got.at(i, j), want, bound)
            << dtype_name(c.dtype()) << " row " << i << " of " << rows << ", feature " << j;
      }
    }
  }

  Random random_{43};
};

TEST_P(QuantLinear, MatchesExactSums) {
  SCOPED_TRACE(random_.trace());
  int number = 0;
  for (const QuantFormat& format : formats()) {
    SCOPED_TRACE(trace(format));
    for (const DType dtype : kDTypes) {
      const bool small = ++number % 2 == 0;
      const QuantCase c(dtype, format, small ? 40 : 130, small ? 72 : 600, small, random_);
      for (const int64_t rows : {1, 9, 20, 40}) {
        if (rows != 9 && (number + rows) % 3 == 0) continue;
        expect_close(
            c, rows,
            {.bias = rows == 9, .residual = rows == 20, .multiprocessors = small ? 1 : 132});
      }
      expect_close(c, 3, {.out_dtype = dtype, .gap = 3, .offset = 1});
    }
  }
}

// A row of the unit matrix picks an input's weights, which 16-bit floats of the sums' size hold.
TEST_P(QuantLinear, EveryCodeIsExact) {
  constexpr int64_t kInputs = 256;
  std::vector<float> unit(size_t(kInputs * kInputs));
  for (int64_t i = 0; i < kInputs; ++i) unit[size_t(i * kInputs + i)] = 1.0f;
  for (const QuantFormat& format : formats()) {
    SCOPED_TRACE(trace(format));
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const QuantCase c(dtype, format, 32, kInputs, false, random_);
      const auto first = std::vector<float>(unit.begin(), unit.begin() + 30 * kInputs);
      for (const bool tiles : {false, true}) {
        if (tiles && format.reordered) continue;  // quant_linear() puts rows in order
        const DeviceMatrix got = c.run(first, {.tiles = tiles});
        for (int64_t i = 0; i < 30; ++i) {
          for (int64_t j = 0; j < 32; ++j) ASSERT_EQ(got.at(i, j), c.weight(j, i)) << i << " " << j;
        }
      }
    }
  }
}

// A row's bits: alone, and among any number of others.
TEST_P(QuantLinear, RowsDoNotDependOnTheirCompany) {
  SCOPED_TRACE(random_.trace());
  for (const QuantFormat& format : formats()) {
    if (format.group_size == 128 && format.bits == 8) continue;
    SCOPED_TRACE(trace(format));
    for (const DType dtype : kDTypes) {
      const int64_t k = format.bits == 4 ? 712 : 200;
      const QuantCase c(dtype, format, 72, k, true, random_);
      for (const bool silu : {false, true}) {
        const Options o{.bias = true, .gate_mul = silu, .out_dtype = dtype};
        const auto row = random_.uniforms(dtype, k);
        const auto want = c.run(row, o).values();
        for (const int64_t rows : {2, 15, 17, 33}) {
          auto x = random_.uniforms(dtype, rows * k);
          const int64_t place = random_.integer(0, rows - 1);
          std::copy(row.begin(), row.end(), x.begin() + place * k);
          const DeviceMatrix got = c.run(x, o);
          for (int64_t j = 0; j < got.cols(); ++j) {
            ASSERT_EQ(got.at(place, j), want[size_t(j)])
                << rows << " rows of " << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST(QuantRows, SameBitsFrom1To300) {
  Random random(47);
  const QuantFormat format{.bits = 4, .group_size = 32, .zero_points = true};
  const QuantCase c(DType::kBF16, format, 16, 300, false, random);
  const auto x = random.uniforms(DType::kBF16, 300 * 300);
  const DeviceMatrix all = c.run(x, {});
  for (int64_t rows = 1; rows < 300; rows += rows < 70 ? 1 : 7) {
    const DeviceMatrix some = c.run({x.begin(), x.begin() + rows * 300}, {});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < 16; ++j)
        ASSERT_EQ(some.at(i, j), all.at(i, j)) << i << " of " << rows;
    }
  }
}

// Slices of many stages, whose copies run far ahead, with k that ends within a stage.
TEST(QuantRows, LongRowsHaveTheBitsOfTiles) {
  Random random(49);
  constexpr int64_t kInputs = 5208;
  bool wide = false;  // blocks of four tiles, or of two
  for (const QuantFormat& format : formats()) {
    if (format.reordered) continue;
    SCOPED_TRACE(trace(format));
    const DType dtype = format.zero_points ? DType::kF16 : DType::kBF16;
    const QuantCase c(dtype, format, 64, kInputs, false, random);
    for (const int64_t rows : {7, 13, 25}) {
      const auto x = random.uniforms(dtype, (rows - wide) * kInputs);
      const DeviceMatrix few = c.run(x, {.multiprocessors = wide ? 0 : 132});
      ASSERT_EQ(few.values(), c.run(x, {.tiles = true}).values()) << rows;
      const auto [want, size] = c.exact(x, 5, 63, false);
      ASSERT_NEAR(few.at(5, 63), want, c.bound(size));
      wide = !wide;
    }
  }
}

// Every shape of wgmma's kernel: slices in clusters or in turn, small tiles and large ones.
TEST_P(QuantLinear, WgmmaHasTheBitsOfTiles) {
  if (!device_has_wgmma()) GTEST_SKIP() << "not a GPU of compute capability 9.0";
  SCOPED_TRACE(random_.trace());
  int number = 0;
  for (const QuantFormat& format : formats()) {
    if (format.reordered) continue;
    SCOPED_TRACE(trace(format));
    const DType dtype = ++number % 2 == 0 ? DType::kBF16 : DType::kF16;
    const bool gate_up = number % 3 == 0;
    const int64_t n = gate_up ? 40 : 72, k = number % 4 == 0 ? 72 : 584;
    const QuantCase c(dtype, format, n, k, gate_up, random_);
    for (const int64_t rows : {9, 11, 27, 28, 50, 62, 70, 129}) {
      if ((number + rows) % 4 != 0) continue;
      const auto x = random_.uniforms(dtype, rows * k);
      const auto residual = random_.uniforms(dtype, rows * n);
      Options o{.bias = rows % 2 == 0,
                .residual = rows == 27 && !gate_up,
                .gate_mul = gate_up && rows != 50,
                .out_dtype = rows == 11 ? DType::kF32 : dtype,
                .multiprocessors = number % 2 == 0 ? 132 : 1,
                .tiles = true};
      const DeviceMatrix want = c.run(x, o, residual);
      o.tiles = false;
      o.wgmma = true;
      ASSERT_EQ(c.run(x, o, residual).values(), want.values())
          << rows << " rows of " << dtype_name(dtype) << ", " << o.multiprocessors
          << " multiprocessors";
    }
  }
}

TEST(QuantRows, WgmmaHasTheBitsOfTilesUpTo620) {
  if (!device_has_wgmma()) GTEST_SKIP() << "not a GPU of compute capability 9.0";
  Random random(50);
  const QuantFormat format{.bits = 4, .group_size = 32, .zero_points = true};
  const QuantCase c(DType::kBF16, format, 136, 136, false, random);
  const auto x = random.uniforms(DType::kBF16, 620 * 136);
  const DeviceMatrix all = c.run(x, {.tiles = true});
  for (const int64_t rows : {1, 15, 33, 65, 127, 129, 620}) {
    for (const int32_t multiprocessors : {1, 9}) {
      if (rows == 620 && multiprocessors == 9) continue;
      const DeviceMatrix some = c.run({x.begin(), x.begin() + rows * 136},
                                      {.multiprocessors = multiprocessors, .wgmma = true});
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < 136; ++j) {
          ASSERT_EQ(some.at(i, j), all.at(i, j)) << i << " of " << rows << ", feature " << j;
        }
      }
    }
  }
}

TEST_P(QuantLinear, AResidualAndAGateGiveTheBitsOfSeparateOps) {
  SCOPED_TRACE(random_.trace());
  const QuantFormat format{.bits = 4, .group_size = 64, .zero_points = true};
  for (const DType dtype : kDTypes) {
    const QuantCase c(dtype, format, 72, 136, true, random_);
    for (const int64_t rows : {3, 20, 40}) {
      const auto x = random_.uniforms(dtype, rows * 136);
      const auto residual = random_.uniforms(dtype, rows * 72);
      Options o{.bias = true, .out_dtype = dtype};
      const DeviceMatrix plain = c.run(x, o), want(dtype, rows, 36);
      o.gate_mul = true;
      for (const GateSpec& gate : kGates) {
        gate_mul({dtype, plain.matrix(), want.matrix(), gate}, nullptr);
        o.gate = gate;
        ASSERT_EQ(c.run(x, o).values(), want.values()) << rows;
      }
      o = {.bias = true, .residual = true, .out_dtype = dtype};
      const DeviceMatrix sum = c.run(x, o, residual);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < 72; ++j) {
          ASSERT_EQ(sum.at(i, j),
                    round_to_dtype(dtype, plain.at(i, j) + residual[size_t(i * 72 + j)]));
        }
      }
    }
  }
}

// A reordered weight's sums are those of rows in its order, however many pieces they come in.
TEST(QuantRows, OrderedInPieces) {
  Random random(48);
  const QuantFormat format{.bits = 4, .group_size = 32, .reordered = true};
  const QuantCase c(DType::kBF16, format, 16, 40, false, random);
  const int64_t rows = kMostReorderedRows + 5;
  const auto x = random.uniforms(DType::kBF16, rows * 40);
  const DeviceMatrix all = c.run(x, {});
  for (const int64_t i : {int64_t{0}, kMostReorderedRows - 1, kMostReorderedRows, rows - 1}) {
    const DeviceMatrix one = c.run({x.begin() + i * 40, x.begin() + (i + 1) * 40}, {});
    for (int64_t j = 0; j < 16; ++j) ASSERT_EQ(all.at(i, j), one.at(0, j)) << i;
  }
}

// NaN in one row stays there; what lies behind k in x doesn't matter (NaN in cases with a gap).
TEST_P(QuantLinear, RowsKeepTheirNanToThemselves) {
  const QuantCase c(DType::kF16, {.bits = 8, .group_size = 32}, 16, 80, false, random_);
  for (const int64_t rows : {4, 40}) {
    auto x = random_.uniforms(DType::kF16, rows * 80);
    x[80 + 7] = std::nanf("");
    const DeviceMatrix got = c.run(x, {});
    for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(got.at(i, 3)), i == 1) << i;
  }
}

TEST_P(QuantLinear, EmbeddingsAreItsWeights) {
  for (const DType dtype : kDTypes) {
    const QuantFormat format{.bits = 8, .group_size = 64};
    const QuantCase c(dtype, format, 70, 200, false, random_);
    const std::vector<int32_t> ids = {69, 0, 17, 8, 69};
    const DeviceArray<int32_t> device_ids(ids);
    DeviceMatrix out(dtype, 5, 200, 3);
    quant_embed({.embed = {.dtype = dtype,
                           .table = {c.data(), 70, 200, 0},
                           .token_ids = device_ids.data(),
                           .out = out.matrix()},
                 .layout = c.layout()},
                nullptr);
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 200; ++j) {
        ASSERT_EQ(out.at(i, j), round_to_dtype(dtype, c.weight(ids[size_t(i)], j)));
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(QuantLinear);

}  // namespace
}  // namespace headrace::cuda
