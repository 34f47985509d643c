#include "benchmarks/cuda/float8/sum_errors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "cuda/kernels/rounded/round_rows.h"
#include "cuda/kernels/rounded/rounded_linear.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"

namespace headrace::bench {
namespace {

// Different ones; the product's repeat them, so that it fills a GPU and takes its large tiles.
constexpr int64_t kRows = 16, kFeatures = 256;
constexpr int64_t kManyRows = 960, kAllFeatures = 4096;
constexpr size_t kPeerWorkspace = size_t{32} << 20;

/// Codes and scales of one k, as the device's kernels and exact sums take them.
struct Operands {
  cuda::QuantLayout layout;
  std::vector<uint8_t> weight;       // [kFeatures][k]
  std::vector<float> weight_scales;  // [kFeatures][groups]
  std::vector<uint8_t> rows;         // as round_rows() leaves kRows
  std::vector<double> sums, sizes;   // [kRows][kFeatures], exact; of absolute products

  int64_t k() const { return layout.matrix.k; }
  int64_t group_size() const { return k() / layout.groups(); }
};

/// Bell-shaped numbers to the nearest codes, with the scales that the format says.
void round_weight(Operands& to, std::mt19937& random) {
  std::normal_distribution<float> bell;
  const int64_t k = to.k(), size = to.group_size();
  to.weight.resize(static_cast<size_t>(kFeatures * k));
  std::vector<float> numbers(static_cast<size_t>(size));
  for (int64_t i = 0; i < kFeatures * k; i += size) {
    float top = 0;
    for (float& number : numbers) {
      number = bell(random);
      top = std::max(top, std::abs(number));
    }
    to.weight_scales.push_back(top / 448.0f);
    for (int64_t j = 0; j < size; ++j) {
      to.weight[static_cast<size_t>(i + j)] =
          f32_to_e4m3(numbers[static_cast<size_t>(j)] * (448.0f / top));
    }
  }
}

void add_exactly(Operands& to) {
  const int64_t k = to.k(), size = to.group_size(), groups = to.layout.groups();
  const cuda::RoundedRows rows(to.layout, kRows);
  std::vector<float> scales(static_cast<size_t>(groups * rows.scale_stride));
  std::memcpy(scales.data(), to.rows.data() + rows.scales_at(), scales.size() * sizeof(float));
  std::vector<double> numbers(256);
  for (int i = 0; i < 256; ++i) {
    numbers[static_cast<size_t>(i)] = double(e4m3_to_f32(static_cast<uint8_t>(i)));
  }
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t feature = 0; feature < kFeatures; ++feature) {
      double sum = 0, all = 0;
      for (int64_t group = 0; group < groups; ++group) {
        double part = 0, part_size = 0;
        for (int64_t j = group * size; j < (group + 1) * size; ++j) {
          const double product = numbers[to.rows[size_t(row * rows.stride + j)]] *
                                 numbers[to.weight[size_t(feature * k + j)]];
          part += product;
          part_size += std::abs(product);
        }
        const double scale = double(scales[size_t(group * rows.scale_stride + row)]) *
                             double(to.weight_scales[size_t(feature * groups + group)]);
        sum += scale * part;
        all += scale * part_size;
      }
      to.sums.push_back(sum);
      to.sizes.push_back(all);
    }
  }
}

/// The operands on the device: kAllFeatures, and kManyRows rounded there.
class DeviceOperands {
 public:
  DeviceOperands(BenchDevice& device, const QuantFormat& format, int64_t k, uint32_t seed)
      : device_(device),
        host_{.layout = {{.n = kAllFeatures, .k = k}, format}},
        rounded_(device, size_t(cuda::RoundedRows(host_.layout, kManyRows).bytes())),
        weight_(device, size_t(host_.layout.bytes())),
        plain_weight_(device, size_t(kAllFeatures * k)),
        x_(device, size_t(kManyRows * k)),
        out_(device, size_t(kManyRows * kAllFeatures)),
        workspace_(device, kPeerWorkspace) {
    std::mt19937 random(seed);
    round_weight(host_, random);
    upload_weight();
    upload_rows(random);
    round_rows(kRows);
    host_.rows.resize(size_t(cuda::RoundedRows(host_.layout, kRows).bytes()));
    device.download(host_.rows.data(), rounded_.data(), host_.rows.size());
    add_exactly(host_);
  }

  const Operands& host() const { return host_; }

  using Kernel = void (*)(const cuda::QuantLinearArgs&, cuda::Stream);
  std::vector<float> multiply(Kernel kernel, int64_t rows, bool has_wgmma) {
    round_rows(rows);
    const int64_t k = host_.k();
    kernel({.linear = {.dtype = DType::kBF16,
                       .x = {x_.data(), rows, k, k},
                       .weight = weight_.data(),
                       .layout = host_.layout.matrix,
                       .out_dtype = DType::kF32,
                       .out = {out_.data(), rows, kAllFeatures, kAllFeatures},
                       .multiprocessors = device_.traits().multiprocessors,
                       .has_wgmma = has_wgmma},
            .format = host_.layout.format,
            .rounded = rounded_.data(),
            .is_rounded = true},
           device_.stream());
    return first_of_out();
  }

  /// The same codes, whose scales come after.
  std::vector<float> multiply_by_peer(const CublasLt& library, bool fast_sums) {
    round_rows(kManyRows);
    const CublasLt::Product product(library, {kManyRows, kAllFeatures, host_.k(), workspace_.data(),
                                              kPeerWorkspace, true, fast_sums, true});
    if (product.num_algorithms() == 0) throw std::runtime_error("cuBLASLt offers no algorithm");
    product.run(0, rounded_.data(), plain_weight_.data(), out_.data(), device_.stream());
    std::vector<float> out = first_of_out();
    const cuda::RoundedRows rows(host_.layout, kRows);
    for (int64_t i = 0; i < kRows * kFeatures; ++i) {
      float scale;
      std::memcpy(&scale, host_.rows.data() + rows.scales_at() + i / kFeatures * 4, 4);
      out[size_t(i)] *= scale * host_.weight_scales[size_t(i % kFeatures)];
    }
    return out;
  }

 private:
  void upload_weight() {
    const cuda::QuantLayout& layout = host_.layout;
    const int64_t k = host_.k(), groups = layout.groups();
    std::vector<uint8_t> tiles(size_t(kFeatures / cuda::kQuantTile * layout.tile_bytes()));
    for (int64_t feature = 0; feature < kFeatures; ++feature) {
      const int row = static_cast<int>(feature % cuda::kQuantTile);
      uint8_t* const tile = tiles.data() + feature / cuda::kQuantTile * layout.tile_bytes();
      for (int64_t j = 0; j < k; ++j) {
        tile[cuda::rounded_code_place(row, j)] = host_.weight[size_t(feature * k + j)];
      }
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t place = group * cuda::kQuantTile + cuda::pair_place(row);
        std::memcpy(tile + layout.scales_at() + 4 * place,
                    &host_.weight_scales[size_t(feature * groups + group)], 4);
      }
    }
    for (int64_t i = 0; i < kAllFeatures / kFeatures; ++i) {
      device_.upload(weight_.data() + size_t(i) * tiles.size(), tiles.data(), tiles.size());
      device_.upload(plain_weight_.data() + size_t(i * kFeatures * k), host_.weight.data(),
                     host_.weight.size());
    }
  }

  void upload_rows(std::mt19937& random) {
    std::normal_distribution<float> bell;
    std::vector<uint16_t> numbers(size_t(kRows * host_.k()));
    for (uint16_t& number : numbers) number = f32_to_bf16(bell(random));
    for (int64_t i = 0; i < kManyRows / kRows; ++i) {
      device_.upload(x_.data() + size_t(i) * numbers.size(), numbers.data(), 2 * numbers.size());
    }
  }

  void round_rows(int64_t rows) {
    const int64_t k = host_.k();
    cuda::round_rows({.dtype = DType::kBF16,
                      .x = {x_.data(), rows, k, k},
                      .layout = host_.layout,
                      .out = rounded_.data()},
                     device_.stream());
  }

  std::vector<float> first_of_out() {
    std::vector<float> out(size_t(kRows * kFeatures));
    for (int64_t row = 0; row < kRows; ++row) {
      device_.download(out.data() + row * kFeatures, out_.data() + row * kAllFeatures,
                       size_t(kFeatures) * 4);
    }
    return out;
  }

  BenchDevice& device_;
  Operands host_;
  DeviceArray<uint8_t> rounded_, weight_, plain_weight_;
  DeviceArray<uint16_t> x_;
  DeviceArray<float> out_;
  DeviceArray<char> workspace_;
};

/// Errors are of the sum of absolute products; `bias` counts those towards zero as negative;
/// `noise` is the root mean square of errors over that of sums.
void print_errors(const std::string& way, int64_t rows, const char* scales, const Operands& want,
                  const std::vector<float>& got) {
  double largest = 0, mean = 0, bias = 0, errors = 0, sums = 0;
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = double(got[i]) - want.sums[i], share = error / want.sizes[i];
    largest = std::max(largest, std::abs(share));
    mean += std::abs(share) / double(got.size());
    bias += (want.sums[i] < 0 ? -share : share) / double(got.size());
    errors += error * error;
    sums += want.sums[i] * want.sums[i];
    uint32_t bits;
    std::memcpy(&bits, &got[i], 4);
    hash = (hash ^ bits) * 1099511628211u;
  }
  std::printf(
      "{\"error_of\": \"%s\", \"k\": %lld, \"rows\": %lld, \"scales\": \"%s\", \"largest\": %.4g, "
      "\"mean\": %.4g, \"bias\": %.4g, \"noise\": %.4g, \"bits\": \"%016llx\"}\n",
      way.c_str(), static_cast<long long>(want.k()), static_cast<long long>(rows), scales, largest,
      mean, bias, std::sqrt(errors / sums), static_cast<unsigned long long>(hash));
}

}  // namespace

void print_sum_errors(BenchDevice& device, const CublasLt* peer) {
  const bool has_wgmma = device.traits().has_wgmma;
  for (const int64_t k : {128, 512, 2048, 4096, 14336}) {
    for (const Activations activations : {Activations::kFloat8Rows, Activations::kFloat8Groups}) {
      const bool by_group = activations == Activations::kFloat8Groups;
      const char* const scales = by_group ? "of 128 k" : "of rows";
      DeviceOperands operands(device,
                              {.bits = 8, .group_size = kMaxQuantGroup, .activations = activations},
                              k, static_cast<uint32_t>(k));
      const auto print = [&](const std::string& way, int64_t rows, const std::vector<float>& got) {
        print_errors(way, rows, scales, operands.host(), got);
      };
      if (has_wgmma) {
        for (const int64_t rows : {kRows, int64_t{48}, kManyRows}) {
          print("wgmma", rows, operands.multiply(&cuda::rounded_linear_wgmma, rows, true));
        }
      }
      print("mma.sync", kRows, operands.multiply(&cuda::rounded_linear_few, kRows, false));
      print("mma.sync", kManyRows,
            operands.multiply(&cuda::rounded_linear_tiles, kManyRows, false));
      if (peer == nullptr || by_group) continue;
      for (const bool fast : {false, true}) {
        const std::string way = peer->name() + (fast ? ", fast sums" : "");
        try {
          print(way, kManyRows, operands.multiply_by_peer(*peer, fast));
        } catch (const std::runtime_error& e) {
          std::printf("{\"missing\": \"%s\", \"why\": \"%s\"}\n", way.c_str(), e.what());
        }
      }
    }
  }
}

}  // namespace headrace::bench
