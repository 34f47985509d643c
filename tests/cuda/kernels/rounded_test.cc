// round_rows() and quant_linear() of codes that meet codes, in the emulation, against sums in
// double, and against themselves in other company.

#include <cmath>
#include <limits>

#include "cuda/emulation/short_sums.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "cuda/kernels/rounded/rounded_linear.h"
#include "cuda/kernels/rows/rms_norm.h"
#include "device_data.h"
#include "tensor/float8.h"

namespace headrace::cuda {
namespace {

constexpr Activations kKinds[] = {Activations::kInt8Rows, Activations::kFloat8Rows,
                                  Activations::kFloat8Groups};

QuantFormat format_of(Activations kind) {
  return {.bits = 8, .group_size = 128, .activations = kind};
}

float number_of(const QuantFormat& format, uint8_t code) {
  return has_float8(format) ? e4m3_to_f32(code) : static_cast<float>(static_cast<int8_t>(code));
}

struct Options {
  bool bias = false, gate_mul = false;
  DType out_dtype = DType::kF32;
  int64_t gap = 0;  // of x, in elements
  int32_t multiprocessors = 132;
  bool tiles = false;  // by rounded_linear_tiles, however few rows
  bool wgmma = false;  // where the device has it
};

/// Rows as QuantFormat says: [rows][k] codes and what they mean, and [rows][scales] scales.
struct RowsAsSaid {
  std::vector<uint8_t> codes;
  std::vector<float> scales, meant;
};

/// A random weight, and what it means.
class RoundedCase {
 public:
  RoundedCase(DType dtype, Activations kind, int64_t n, int64_t k, bool gate_up, Random& random)
      : dtype_(dtype),
        layout_{{n, k, gate_up}, format_of(kind)},
        codes_(static_cast<size_t>(n * k)),
        scales_(static_cast<size_t>(n * layout_.groups())),
        weights_(static_cast<size_t>(n * k)),
        bias_(random.uniforms(dtype, n)),
        stored_(std::vector<uint8_t>(static_cast<size_t>(layout_.bytes()))),
        bias_data_(dtype, 1, n, bias_) {
    for (int64_t i = 0; i < n; ++i) fill_row(i, random);
  }

  const QuantLayout& layout() const { return layout_; }
  DType dtype() const { return dtype_; }
  int64_t n() const { return layout_.matrix.n; }
  int64_t k() const { return layout_.matrix.k; }

  DeviceMatrix run(const std::vector<float>& x, const Options& o) const {
    const int64_t rows = static_cast<int64_t>(x.size()) / k();
    const DeviceMatrix in(dtype_, rows, k(), x, o.gap);
    DeviceMatrix out(o.out_dtype, rows, o.gate_mul ? n() / 2 : n(), 3);
    const DeviceArray<uint8_t> rounded(size_t(RoundedRows(layout_, rows).bytes()));
    QuantLinearArgs args{.linear = {.dtype = dtype_,
                                    .x = in.matrix(),
                                    .weight = stored_.data(),
                                    .layout = layout_.matrix,
                                    .gate_mul = o.gate_mul,
                                    .out_dtype = o.out_dtype,
                                    .out = out.matrix(),
                                    .multiprocessors = o.multiprocessors,
                                    .has_wgmma = o.wgmma && device_has_wgmma()},
                         .format = layout_.format,
                         .rounded = rounded.data()};
    if (o.bias) args.linear.bias = bias_data_.data();
    if (o.tiles) {
      round_rows({dtype_, in.matrix(), layout_, rounded.data()}, nullptr);
      rounded_linear_tiles(args, nullptr);
    } else {
      quant_linear(args, nullptr);
    }
    return out;
  }

  /// The product of a row's codes with a feature's, and what sizes its terms have.
  std::pair<double, double> exact(const std::vector<float>& rounded_x, int64_t row, int64_t feature,
                                  bool bias) const {
    double sum = bias ? double(bias_[size_t(feature)]) : 0.0, size = std::abs(sum);
    for (int64_t j = 0; j < k(); ++j) {
      const double term =
          double(rounded_x[size_t(row * k() + j)]) * weights_[size_t(feature * k() + j)];
      sum += term;
      size += std::abs(term);
    }
    return {sum, size};
  }

  /// Roundings of mma.sync: of each product of 32 k two (a GPU's tensor core truncates), of each
  /// unit two for its scales and one for the sum; of scales, slices and the row's rounded codes a
  /// few.
  double bound(double size) const {
    return size * (double(layout_.units()) * (4 * 2 + 3) + kQuantSlices + 8) * 0x1p-24;
  }

  /// What wgmma makes of e4m3, bit by bit: each unit as Hopper adds it, the units in float32.
  std::vector<float> by_wgmma(const RowsAsSaid& said, int64_t rows, bool bias) const {
    const int64_t units = layout_.units();
    const bool by_unit = layout_.groups() > 1;
    std::vector<float> out(size_t(rows * n())), products(out.size());
    for (int64_t step = 0; step < units * 4; ++step) {
      const auto x = step_of(said.codes, rows, step), weights = step_of(codes_, n(), step);
      emulation::add_short_matrix(x.data(), weights.data(), int(rows), int(n()), step % 4 > 0,
                                  products.data());
      for (size_t i = 0; step % 4 == 3 && i < out.size(); ++i) {
        out[i] = by_unit ? std::fmaf(products[i], scale(said, int64_t(i), step / 4), out[i])
                         : out[i] + products[i];
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (!by_unit) out[i] *= scale(said, int64_t(i), 0);
      if (bias) out[i] += bias_[i % size_t(n())];
    }
    return out;
  }

 private:
  void fill_row(int64_t i, Random& random) {
    const QuantFormat& format = layout_.format;
    const int64_t stored = layout_.matrix.stored_row(i);
    const int row = static_cast<int>(stored % kQuantTile);
    uint8_t* const tile = stored_.data() + stored / kQuantTile * layout_.tile_bytes();
    float scale = 0.0f;
    for (int64_t j = 0; j < k(); ++j) {
      const int64_t group = layout_.groups() == 1 ? 0 : j / 128;
      if (j == 0 || (j % 128 == 0 && layout_.groups() > 1)) {
        scale = random.uniform(0.001f, 0.01f);
        const int64_t pair = group * kQuantTile + pair_place(row);
        std::memcpy(tile + layout_.scales_at() + pair * 4, &scale, 4);
        scales_[size_t(i * layout_.groups() + group)] = scale;
      }
      auto code = static_cast<uint8_t>(random.integer(0, 255));
      if (has_float8(format) && (code & 0x7f) == 0x7f) code = 0;
      tile[rounded_code_place(row, j)] = code;
      codes_[size_t(i * k() + j)] = code;
      weights_[size_t(i * k() + j)] = double(scale) * double(number_of(format, code));
    }
  }

  /// The 32 codes of each row that a product takes, zeros behind the last.
  std::vector<uint8_t> step_of(const std::vector<uint8_t>& codes, int64_t rows,
                               int64_t step) const {
    std::vector<uint8_t> out(size_t(rows * 32));
    for (int64_t i = 0; i < rows * 32; ++i) {
      const int64_t j = step * 32 + i % 32;
      if (j < k()) out[size_t(i)] = codes[size_t(i / 32 * k() + j)];
    }
    return out;
  }

  /// Of a row and a feature together, of number `place` of the output.
  float scale(const RowsAsSaid& said, int64_t place, int64_t group) const {
    const int64_t groups = layout_.groups(), row = place / n(), feature = place % n();
    return scales_[size_t(feature * groups + group)] * said.scales[size_t(row * groups + group)];
  }

  DType dtype_;
  QuantLayout layout_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
  std::vector<double> weights_;
  std::vector<float> bias_;
  DeviceArray<uint8_t> stored_;
  DeviceMatrix bias_data_;
};

RowsAsSaid round_as_said(const QuantFormat& format, const std::vector<float>& x, int64_t k) {
  const int64_t run = format.activations == Activations::kFloat8Groups ? 128 : k;
  const float most = most_of(format);
  RowsAsSaid out;
  for (size_t row = 0; row < x.size(); row += size_t(k)) {
    for (int64_t first = 0; first < k; first += run) {
      const float* const at = x.data() + row + first;
      const int64_t count = std::min(run, k - first);
      float top = 0.0f;
      for (int64_t i = 0; i < count; ++i) top = std::max(top, std::abs(at[i]));
      out.scales.push_back(top / most);
      for (int64_t i = 0; i < count; ++i) {
        const float wanted = at[i] * (most / top);
        const uint8_t code = has_float8(format)
                                 ? f32_to_e4m3(wanted)
                                 : static_cast<uint8_t>(static_cast<int>(std::nearbyint(wanted)));
        out.codes.push_back(code);
        out.meant.push_back(number_of(format, code) * out.scales.back());
      }
    }
  }
  return out;
}

class RoundedLinear : public KernelTest {
 protected:
  /// Numbers of very different sizes.
  std::vector<float> numbers(DType dtype, int64_t count) {
    std::vector<float> out = random_.uniforms(dtype, count);
    for (float& x : out) x = round_to_dtype(dtype, x * std::exp2(float(random_.integer(-6, 3))));
    return out;
  }

  Random random_{61};
};

/// Codes of a row whose largest size makes a scale of 1.
std::vector<uint8_t> codes_of(Activations kind, const std::vector<float>& x) {
  const QuantLayout layout{{16, int64_t(x.size()), false}, format_of(kind)};
  const DeviceMatrix in(DType::kF32, 1, layout.matrix.k, x);
  const DeviceArray<uint8_t> out(size_t(RoundedRows(layout, 1).bytes()));
  round_rows({DType::kF32, in.matrix(), layout, out.data()}, nullptr);
  return {out.data(), out.data() + x.size()};
}

// Every number that a code stands for, and the middles between neighbours with what is next to
// them.
TEST(RoundedCodes, AreTheNearestOfFloat8) {
  std::vector<float> x = {448.0f};
  std::vector<int> wanted = {0x7e};
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const float own = e4m3_to_f32(uint8_t(code));
    EXPECT_EQ(f32_to_e4m3(own), code);
    x.push_back(own);
    wanted.push_back(code);
    if ((code & 0x7f) == 0x7e) continue;
    const float next = e4m3_to_f32(uint8_t(code + 1)), middle = (own + next) / 2;
    const int even = code % 2 == 0 ? code : code + 1;
    for (const auto& [value, want] :
         {std::pair{middle, even}, std::pair{std::nextafter(middle, own), code},
          std::pair{std::nextafter(middle, next), code + 1}}) {
      EXPECT_EQ(f32_to_e4m3(value), want) << value;
      x.push_back(value);
      wanted.push_back(want);
    }
  }
  const std::vector<uint8_t> got = codes_of(Activations::kFloat8Rows, x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[i], wanted[i]) << x[i];
  for (const float large : {448.0f, 460.0f, 1e30f}) EXPECT_EQ(f32_to_e4m3(-large), 0xfe);
}

TEST(RoundedCodes, AreTheNearestOfInt8) {
  std::vector<float> x = {-127.0f};
  for (int i = -126; i <= 126; ++i) {
    for (const float more : {0.0f, 0.5f, 0.49f, -0.49f}) x.push_back(float(i) + more);
  }
  const std::vector<uint8_t> got = codes_of(Activations::kInt8Rows, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(static_cast<int8_t>(got[i]), static_cast<int>(std::nearbyint(x[i]))) << x[i];
  }
}

TEST_P(RoundedLinear, MatchesExactSumsOfRoundedRows) {
  SCOPED_TRACE(random_.trace());
  int number = 0;
  for (const Activations kind : kKinds) {
    for (const DType dtype : kDTypes) {
      const bool small = ++number % 2 == 0;
      const RoundedCase c(dtype, kind, small ? 40 : 130, small ? 72 : 1200, small, random_);
      for (const int64_t rows : {1, 9, 20, 40}) {
        if (rows != 9 && (number + rows) % 3 == 0) continue;
        const auto x = numbers(dtype, rows * c.k());
        const auto said = round_as_said(c.layout().format, x, c.k());
        for (const bool wgmma : {false, true}) {
          if (wgmma && (kind == Activations::kInt8Rows || !device_has_wgmma())) continue;
          const Options o{.bias = rows == 9,
                          .gap = rows == 20 ? 3 : 0,
                          .multiprocessors = small ? 1 : 132,
                          .wgmma = wgmma};
          const DeviceMatrix got = c.run(x, o);
          if (wgmma) {
            ASSERT_EQ(got.values(), c.by_wgmma(said, rows, o.bias)) << dtype_name(dtype);
            continue;
          }
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < c.n(); ++j) {
              const auto [want, size] = c.exact(said.meant, i, j, o.bias);
              ASSERT_NEAR(got.at(i, j), want, c.bound(size))
                  << dtype_name(dtype) << " row " << i << " of " << rows << ", feature " << j;
            }
          }
        }
      }
    }
  }
}

// A row's bits: alone and among others, in blocks of few rows and in tiles.
TEST_P(RoundedLinear, RowsDoNotDependOnTheirCompany) {
  SCOPED_TRACE(random_.trace());
  for (const Activations kind : kKinds) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const RoundedCase c(dtype, kind, 72, 712, true, random_);
      for (const bool silu : {false, true}) {
        const Options o{.bias = true, .gate_mul = silu, .out_dtype = dtype};
        const auto row = numbers(dtype, c.k());
        const auto want = c.run(row, o).values();
        for (const int64_t rows : {silu ? 2 : 15, silu ? 17 : 33}) {
          auto x = numbers(dtype, rows * c.k());
          const int64_t place = random_.integer(0, rows - 1);
          std::copy(row.begin(), row.end(), x.begin() + place * c.k());
          const DeviceMatrix got = c.run(x, o);
          for (int64_t j = 0; j < got.cols(); ++j) {
            ASSERT_EQ(got.at(place, j), want[size_t(j)]) << rows << " rows";
          }
          Options tiles = o;
          tiles.tiles = true;
          ASSERT_EQ(c.run(x, tiles).values(), got.values());
        }
      }
    }
  }
}

// By wgmma: every shape of block, in one piece of work or several for a block.
TEST_P(RoundedLinear, RowsByWgmmaDoNotDependOnTheirCompany) {
  SCOPED_TRACE(random_.trace());
  for (const Activations kind : {Activations::kFloat8Rows, Activations::kFloat8Groups}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      const bool silu = dtype == DType::kBF16;
      const RoundedCase c(dtype, kind, 136, 712, silu, random_);
      Options o{.bias = true, .gate_mul = silu, .out_dtype = dtype, .wgmma = true};
      const auto row = numbers(dtype, c.k());
      const auto want = c.run(row, o).values();
      for (const int64_t rows : {12, 30, 50, 100, 200}) {
        if (rows < 100 && (rows / 2 + GetParam()) % 2 == 0) continue;
        auto x = numbers(dtype, rows * c.k());
        const int64_t place = random_.integer(0, rows - 1);
        std::copy(row.begin(), row.end(), x.begin() + place * c.k());
        for (const int32_t multiprocessors : {1, 132}) {
          o.multiprocessors = multiprocessors;
          const DeviceMatrix got = c.run(x, o);
          for (int64_t j = 0; j < got.cols(); ++j) {
            ASSERT_EQ(got.at(place, j), want[size_t(j)]) << rows << " rows";
          }
        }
      }
    }
  }
}

// Odd numbers of tiles for pairs of blocks that copy for each other, against blocks on their own.
TEST_P(RoundedLinear, PairsOfBlocksGiveTheBitsOfSingleOnes) {
  SCOPED_TRACE(random_.trace());
  struct Shape {
    int64_t n, k, rows;
    int32_t multiprocessors;
  };
  constexpr int64_t kPiece = 100;
  for (const Activations kind : {Activations::kFloat8Rows, Activations::kFloat8Groups}) {
    for (const Shape& shape : {Shape{136, 712, 150, 1}, {136, 328, 400, 5}, {300, 200, 420, 7}}) {
      const RoundedCase c(DType::kBF16, kind, shape.n, shape.k, false, random_);
      const auto x = numbers(DType::kBF16, shape.rows * shape.k);
      Options o{.bias = true, .multiprocessors = shape.multiprocessors, .wgmma = true};
      const auto got = c.run(x, o).values();
      std::vector<float> want;
      for (auto at = x.begin(); at != x.end();) {
        const auto end = at + std::min<int64_t>(kPiece * shape.k, x.end() - at);
        const auto piece = c.run({at, end}, o).values();
        want.insert(want.end(), piece.begin(), piece.end());
        at = end;
      }
      ASSERT_EQ(got, want) << shape.rows << " rows";
    }
  }
}

TEST_P(RoundedLinear, RowsThatAreZeroOrNotFinite) {
  for (const Activations kind : kKinds) {
    const RoundedCase c(DType::kF16, kind, 16, 300, false, random_);
    for (const int64_t rows : {4, 40}) {
      auto x = numbers(DType::kF16, rows * 300);
      std::fill_n(x.begin(), 300, 0.0f);
      x[300 + 7] = std::nanf("");
      x[600 + 299] = -std::numeric_limits<float>::infinity();
      const DeviceMatrix got = c.run(x, {.wgmma = rows == 40});
      for (int64_t i = 0; i < rows; ++i) {
        EXPECT_EQ(std::isnan(got.at(i, 3)), i == 1 || i == 2) << i;
      }
      EXPECT_EQ(got.at(0, 3), 0.0f);
    }
  }
}

/// Of all numbers as float32.
std::vector<uint8_t> bytes_of(const DeviceMatrix& x) {
  const std::vector<float> values = x.values();
  std::vector<uint8_t> out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

// Rows and codes that a norm leaves, against those of rms_norm() and round_rows(). The widest rows
// don't fit into the threads' registers.
TEST_P(RoundedLinear, NormsRoundAsRoundRows) {
  SCOPED_TRACE(random_.trace());
  for (const Activations kind : kKinds) {
    for (const DType dtype : kDTypes) {
      for (const int64_t cols : {8, 200, 1024, 6144 * 3}) {
        const int64_t rows = cols > 2000 ? 1 : 5;
        auto x = numbers(dtype, rows * cols);
        if (rows > 1) {
          std::fill_n(x.begin() + cols, cols, 0.0f);
          x[size_t(2 * cols + 3)] = std::nanf("");
          x[size_t(4 * cols - 1)] = std::numeric_limits<float>::infinity();
        }
        const auto delta = numbers(dtype, cols);
        const auto weight = random_.uniforms(dtype, cols, 0.1f, 2.0f);
        const QuantLayout layout{{16, cols, false}, format_of(kind)};
        const auto bytes = size_t(RoundedRows(layout, rows).bytes());
        const DeviceMatrix scale(dtype, 1, cols, weight);
        std::vector<uint8_t> codes[2];
        std::vector<uint8_t> left[2], normed[2];
        for (const bool together : {false, true}) {
          const DeviceMatrix in(dtype, rows, cols, x, 8), out(dtype, rows, cols, 16);
          auto more = delta;
          more.resize(x.size(), 0.0f);
          const DeviceMatrix added(dtype, rows, cols, more);
          const DeviceArray<uint8_t> to(std::vector<uint8_t>(bytes, 0xee));
          RmsNormArgs args{dtype, in.matrix(), added.matrix(), scale.data(), 1e-5f, out.matrix()};
          EXPECT_TRUE(norm_can_round(args));
          if (together) args.rounded = {to.data(), layout};
          rms_norm(args, nullptr);
          if (!together) round_rows({dtype, out.matrix(), layout, to.data()}, nullptr);
          codes[together].assign(to.data(), to.data() + bytes);
          left[together] = bytes_of(in);
          normed[together] = bytes_of(out);
        }
        ASSERT_EQ(codes[0], codes[1]) << dtype_name(dtype) << " " << cols;
        ASSERT_EQ(normed[0], normed[1]);
        ASSERT_EQ(left[0], left[1]);
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(RoundedLinear);

}  // namespace
}  // namespace headrace::cuda
