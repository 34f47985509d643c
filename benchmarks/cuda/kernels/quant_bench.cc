// Quantized linears beside cuBLASLt: int4 weights against its bfloat16 product, FP8 against its
// FP8.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "benchmarks/cuda/kernels/bench_kernels.h"
#include "benchmarks/cuda/kernels/cublaslt.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"
#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "cuda/kernels/rounded/round_rows.h"
#include "cuda/kernels/rounded/rounded_linear.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace headrace::bench {

namespace {

constexpr size_t kPeerWorkspace = size_t{32} << 20;
constexpr QuantFormat kInt4 = {.bits = 4, .group_size = 128, .activations = Activations::kWhole};
constexpr QuantFormat kInt4By32 = {.bits = 4, .group_size = 32, .activations = Activations::kWhole};
constexpr QuantFormat kInt8 = {.bits = 8, .group_size = 64, .activations = Activations::kWhole};
constexpr QuantFormat kFloat8 = {
    .bits = 8, .group_size = kMaxQuantGroup, .activations = Activations::kFloat8Rows};

/// e4m3 codes of numbers below 2.
std::vector<uint8_t> float8_codes(size_t count, uint32_t seed) {
  std::vector<uint8_t> out(count);
  for (uint8_t& code : out) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<uint8_t>(seed >> 24 & 0xbfu);
  }
  return out;
}

/// One product of a shape, ours and the peer's, on random memory.
class QuantProduct {
 public:
  QuantProduct(BenchDevice& device, const KernelBenchOptions& options, const QuantFormat& format,
               const LinearShape& shape, int64_t rows)
      : device_(device),
        layout_{{.n = shape.n, .k = shape.k}, format},
        float8_(rounds_rows(format)),
        rows_(rows),
        bytes_(static_cast<size_t>(layout_.bytes())),
        peer_bytes_(static_cast<size_t>(shape.n * shape.k) * (float8_ ? 1 : 2)),
        turns_(cold_turns(device, options, bytes_)),
        weights_(device, bytes_ * static_cast<size_t>(turns_)),
        peer_weights_(device, peer_bytes_ * static_cast<size_t>(turns_)),
        x_(device, static_cast<size_t>(rows * shape.k)),
        rounded_(device, static_cast<size_t>(cuda::RoundedRows(layout_, rows).bytes())),
        out_(device, static_cast<size_t>(rows * shape.n)),
        peer_out_(device, static_cast<size_t>(rows * shape.n)),
        workspace_(device, kPeerWorkspace) {
    if (float8_) {
      fill_float8();
    } else {  // any bits are codes, and bfloat16 numbers are scales
      fill_uniform(reinterpret_cast<uint16_t*>(weights_.data()), int64_t(weights_.size() / 2), 21,
                   device.stream());
      fill_uniform(reinterpret_cast<uint16_t*>(peer_weights_.data()),
                   int64_t(peer_weights_.size() / 2), 22, device.stream());
    }
    fill_uniform(x_.data(), rows * shape.k, 23, device.stream());
  }

  int turns() const { return turns_; }
  int64_t rows() const { return rows_; }
  std::string work() const {
    return std::to_string(rows_) + " x " + std::to_string(layout_.matrix.n) + " x " +
           std::to_string(layout_.matrix.k);
  }

  /// `has_wgmma`: as far as the device has it.
  Contestant own(bool has_wgmma = true) {
    return {[this, has_wgmma](int turn) {
      const size_t at = static_cast<size_t>(turn % turns_) * bytes_;
      const int64_t n = layout_.matrix.n, k = layout_.matrix.k;
      const cuda::QuantLinearArgs args{
          .linear = {.dtype = DType::kBF16,
                     .x = {x_.data(), rows_, k, k},
                     .weight = weights_.data() + at,
                     .layout = layout_.matrix,
                     .out_dtype = DType::kBF16,
                     .out = {out_.data(), rows_, n, n},
                     .multiprocessors = device_.traits().multiprocessors,
                     .has_wgmma = has_wgmma && device_.traits().has_wgmma},
          .format = layout_.format,
          .rounded = rounded_.data()};
      if (!float8_) return cuda::quant_linear(args, device_.stream());
      // The peer finds its rows rounded, too.
      if (cuda::rounded_can_use_wgmma(args)) {
        cuda::rounded_linear_wgmma(args, device_.stream());
      } else if (rows_ <= cuda::kMostQuantFewRows) {
        cuda::rounded_linear_few(args, device_.stream());
      } else {
        cuda::rounded_linear_tiles(args, device_.stream());
      }
    }};
  }

  /// bfloat16's linear, of the peer's weights.
  Contestant whole() {
    if (layout_.matrix.elements() != layout_.matrix.n * layout_.matrix.k) {
      throw std::runtime_error("a shape with padding");
    }
    return {[this](int turn) {
      const int64_t n = layout_.matrix.n, k = layout_.matrix.k;
      cuda::linear(
          {.dtype = DType::kBF16,
           .x = {x_.data(), rows_, k, k},
           .weight = peer_weights_.data() + static_cast<size_t>(turn % turns_) * peer_bytes_,
           .layout = layout_.matrix,
           .out_dtype = DType::kBF16,
           .out = {peer_out_.data(), rows_, n, n},
           .multiprocessors = device_.traits().multiprocessors,
           .has_wgmma = device_.traits().has_wgmma},
          device_.stream());
    }};
  }

  CublasLt::Problem peer_problem() const {
    return {rows_, layout_.matrix.n, layout_.matrix.k, workspace_.data(), kPeerWorkspace, float8_};
  }
  Contestant peer(const CublasLt::Product& product, size_t algorithm) {
    return {[this, &product, algorithm](int turn) {
      const size_t at = static_cast<size_t>(turn % turns_) * peer_bytes_;
      const void* x = float8_ ? static_cast<const void*>(rounded_.data()) : x_.data();
      product.run(algorithm, x, peer_weights_.data() + at, peer_out_.data(), device_.stream());
    }};
  }

  /// Of the first weight, the first tile's features and the first and last rows: what the host
  /// makes of the same memory. Sums are rounded to bfloat16.
  void expect_right() {
    own().launch(0);
    const int64_t k = layout_.matrix.k, n = layout_.matrix.n;
    std::vector<uint8_t> tile(static_cast<size_t>(layout_.tile_bytes()));
    device_.download(tile.data(), weights_.data(), tile.size());
    for (const int64_t row : {int64_t{0}, rows_ - 1}) {
      const std::vector<float> x = row_of(row);
      std::vector<uint16_t> got(cuda::kQuantTile);
      device_.download(got.data(), out_.data() + row * n, 2 * got.size());
      for (int i = 0; i < cuda::kQuantTile; ++i) {
        double want = 0, size = 0;
        for (int64_t j = 0; j < k; ++j) {
          const double term = double(weight_at(tile, i, j)) * double(x[size_t(j)]);
          want += term;
          size += std::abs(term);
        }
        // Hopper cuts what it adds to sums of e4m3 13 bits below the largest of it.
        const double bound = 0x1p-8 * std::abs(want) + (float8_ ? 0x1p-9 : 0x1p-16) * size;
        if (std::abs(double(bf16_to_f32(got[size_t(i)])) - want) <= bound) continue;
        throw std::runtime_error("row " + std::to_string(row) + ", feature " + std::to_string(i) +
                                 ": " + std::to_string(bf16_to_f32(got[size_t(i)])) +
                                 " and the host's " + std::to_string(want));
      }
    }
  }

 private:
  void fill_float8() {
    const cuda::RoundedRows rows(layout_, rows_);
    std::vector<uint8_t> codes = float8_codes(bytes_, 31);
    const float one = 1.0f;
    const auto put_ones = [&](uint8_t* at, int64_t count) {
      for (int64_t i = 0; i < count; ++i) std::memcpy(at + 4 * i, &one, 4);
    };
    for (int64_t tile = 0; tile < layout_.tiles(); ++tile) {
      put_ones(codes.data() + tile * layout_.tile_bytes() + layout_.scales_at(), cuda::kQuantTile);
    }
    const std::vector<uint8_t> plain = float8_codes(peer_bytes_, 32);
    for (size_t turn = 0; turn < static_cast<size_t>(turns_); ++turn) {
      device_.upload(weights_.data() + turn * bytes_, codes.data(), bytes_);
      device_.upload(peer_weights_.data() + turn * peer_bytes_, plain.data(), peer_bytes_);
    }
    codes = float8_codes(static_cast<size_t>(rows.bytes()), 33);
    put_ones(codes.data() + rows.scales_at(), rows.groups * rows.scale_stride);
    device_.upload(rounded_.data(), codes.data(), codes.size());
  }

  std::vector<float> row_of(int64_t row) const {
    const int64_t k = layout_.matrix.k;
    std::vector<float> out;
    if (float8_) {
      const cuda::RoundedRows rows(layout_, rows_);
      std::vector<uint8_t> codes(static_cast<size_t>(k));
      device_.download(codes.data(), rounded_.data() + row * rows.stride, codes.size());
      for (const uint8_t code : codes) out.push_back(e4m3_to_f32(code));
    } else {
      std::vector<uint16_t> numbers(static_cast<size_t>(k));
      device_.download(numbers.data(), x_.data() + row * k, 2 * numbers.size());
      for (const uint16_t bits : numbers) out.push_back(bf16_to_f32(bits));
    }
    return out;
  }

  float weight_at(const std::vector<uint8_t>& tile, int row, int64_t k) const {
    if (float8_) return e4m3_to_f32(tile[size_t(cuda::rounded_code_place(row, k))]);
    const QuantFormat& format = layout_.format;
    const cuda::CodePlace place = cuda::code_place(format.bits, row, k);
    const int code = tile[size_t(place.byte)] >> place.bit & ((1 << format.bits) - 1);
    uint16_t scale;
    const int64_t pair = k / format.group_size * cuda::kQuantTile + cuda::pair_place(row);
    std::memcpy(&scale, tile.data() + layout_.scales_at() + 2 * pair, 2);
    return bf16_to_f32(scale) * static_cast<float>(code - quant_zero(format.bits));
  }

  BenchDevice& device_;
  cuda::QuantLayout layout_;
  bool float8_;
  int64_t rows_;
  size_t bytes_, peer_bytes_;
  int turns_;
  DeviceArray<uint8_t> weights_, peer_weights_;
  DeviceArray<uint16_t> x_;
  DeviceArray<uint8_t> rounded_;
  DeviceArray<uint16_t> out_, peer_out_;
  DeviceArray<char> workspace_;
};

/// The fastest algorithm that the peer offers.
Contestant fastest_peer(BenchDevice& device, QuantProduct& product, const CublasLt::Product& peer) {
  std::vector<Contestant> offered;
  for (size_t i = 0; i < peer.num_algorithms(); ++i) offered.push_back(product.peer(peer, i));
  if (offered.empty()) throw std::runtime_error("cuBLASLt offers no algorithm");
  const auto seconds = race(device, offered, {.turns = 4, .rounds = 3});
  return product.peer(peer,
                      size_t(std::min_element(seconds.begin(), seconds.end()) - seconds.begin()));
}

/// Median seconds of each contestant, and of the peer, if there is one, behind them.
std::vector<double> race_peer(BenchDevice& device, const KernelBenchOptions& options,
                              const Yardsticks& held, QuantProduct& product,
                              std::vector<Contestant> contestants) {
  product.expect_right();
  std::optional<CublasLt::Product> peer;
  if (held.peer) {
    peer.emplace(*held.peer, product.peer_problem());
    contestants.push_back(fastest_peer(device, product, *peer));
  }
  return race(device, contestants,
              options.race(std::max(options.least_turns / 4, product.turns())));
}

/// Adds a row; how many times as fast as the peer ours is, 0 without one.
double measure(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
               const std::string& number, QuantProduct& product, Report& report,
               const std::string& work) {
  const auto seconds = race_peer(device, options, held, product, {product.own()});
  const double other = held.peer ? 1e6 * seconds[1] : 0;
  report.add(
      time_row(number, work, 1e6 * seconds[0], "us", other, held.peer ? held.peer->name() : ""));
  return held.peer ? seconds[1] / seconds[0] : 0;
}

/// Rows for the same product by each kernel: the one that quant_linear() chooses, those by mma.sync
/// (of few rows), and bfloat16's linear.
void measure_kernels(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                     const std::string& number, QuantProduct& product, Report& report) {
  constexpr int64_t kMostMmaRows = 256;  // more take long
  std::vector<std::string> names = {"", "-bf16"};
  std::vector<Contestant> contestants = {product.own(), product.whole()};
  if (product.rows() <= kMostMmaRows) {
    names.emplace_back("-mma");
    contestants.push_back(product.own(false));
  }
  const auto seconds = race_peer(device, options, held, product, std::move(contestants));
  for (size_t i = 0; i < names.size(); ++i) {
    report.add(time_row(number + names[i], product.work(), 1e6 * seconds[i], "us",
                        held.peer ? 1e6 * seconds.back() : 0, held.peer ? held.peer->name() : ""));
  }
}

}  // namespace

void bench_quantized(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                     Report& report) {
  struct Kind {
    std::string name;
    QuantFormat format;
    int64_t rows;
    std::string work;
  };
  int failed = 0;
  for (const Kind& kind : {Kind{"linear-int4", kInt4, options.quant_rows, "int4 by 128, bf16 rows"},
                           Kind{"linear-fp8", kFloat8, options.many_rows, "FP8 by FP8"}}) {
    std::vector<double> speeds;
    bool whole = true;
    for (const LinearShape& shape : linear_shapes(options.shape)) {
      if (shape.name == "head") continue;  // which these models keep in 8 or 16 bits
      const std::string number = kind.name + "-" + shape.name + "-" + std::to_string(kind.rows);
      try {
        QuantProduct product(device, options, kind.format, shape, kind.rows);
        const std::string work = kind.work + ", " + std::to_string(kind.rows) + " x " +
                                 std::to_string(shape.n) + " x " + std::to_string(shape.k);
        speeds.push_back(measure(device, options, held, number, product, report, work));
      } catch (const std::exception& e) {
        ++failed;
        whole = false;
        report.missing(number, e.what());
      }
    }
    if (!held.peer) {
      report.missing(kind.name, "no cuBLASLt: " + held.peer_missing);
    } else if (!whole) {
      report.missing(kind.name, "some of its products failed");
    } else {
      report.add(rate_row(kind.name, kind.work + ": geometric mean over layers",
                          geometric_mean(speeds), "x", 1, held.peer->name()));
    }
  }
  if (failed > 0) throw std::runtime_error(std::to_string(failed) + " products failed");
}

void bench_quant_rows(BenchDevice& device, const KernelBenchOptions& options,
                      const Yardsticks& held, Report& report) {
  struct Kind {
    const char* name;
    QuantFormat format;
  };
  int failed = 0;
  for (const Kind& kind :
       {Kind{"int4", kInt4}, Kind{"int4-by-32", kInt4By32}, Kind{"int8", kInt8}}) {
    for (const LinearShape& shape : linear_shapes(options.shape)) {
      // The narrowest of a layer, and the widest.
      if (shape.name != "o" && shape.name != "gate_up") continue;
      for (const int64_t rows : options.quant_row_counts) {
        const std::string number =
            std::string(kind.name) + "-" + shape.name + "-" + std::to_string(rows);
        try {
          QuantProduct product(device, options, kind.format, shape, rows);
          measure_kernels(device, options, held, number, product, report);
        } catch (const std::exception& e) {
          ++failed;
          report.missing(number, e.what());
        }
      }
    }
  }
  if (failed > 0) throw std::runtime_error(std::to_string(failed) + " products failed");
}

}  // namespace headrace::bench
