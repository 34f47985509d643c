#include "model/weights/dummy_weights.h"

#include <algorithm>
#include <cmath>

namespace headrace {

namespace {

constexpr int64_t kPoolSize = int64_t{1} << 20;
constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

/// SplitMix64: the `n`-th output of the generator seeded with `seed`.
uint64_t mixed(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * kStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// FNV-1a: the same on every machine, unlike std::hash.
uint64_t seed_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

/// In [-1, 1).
float uniform(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f; }

/// MXFP4 of about a standard deviation.
class DummyFloat4 final : public WeightCodes {
 public:
  DummyFloat4(uint64_t seed, float spread) : seed_(seed) {
    constexpr float kCodesSpread = 2.93f;  // the root of all codes' mean square
    const long exponent = std::lround(std::log2(std::max(spread, 0x1p-100f) / kCodesSpread));
    scale_ = static_cast<uint16_t>(std::clamp(127l + exponent, 0l, 253l));
  }

  const QuantFormat& format() const noexcept override { return kFloat4Format; }
  const std::vector<int32_t>& order() const noexcept override { return order_; }
  void read(int64_t first, int64_t count, int64_t group, QuantizedGroup* out) const override {
    constexpr int32_t kCodes = 64 / kFloat4Format.bits;  // of a number
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t row = mixed(seed_, static_cast<uint64_t>(first + i));
      out[i].scale = scale_;
      for (int32_t j = 0; j < kFloat4Format.group_size; ++j) {
        const auto word = static_cast<uint64_t>(group * 2 + j / kCodes);
        const int32_t bit = j % kCodes * kFloat4Format.bits;
        out[i].codes[j] = static_cast<uint8_t>(mixed(row, word) >> bit & 15);
      }
    }
  }

 private:
  uint64_t seed_;
  uint16_t scale_;
  std::vector<int32_t> order_;  // none
};

}  // namespace

std::vector<WeightPart> DummyWeights::float4_parts(const MatrixSource& source) {
  codes_.clear();
  std::vector<WeightPart> out;
  const uint64_t seed = seed_of(source.parts.front().name);
  for (int32_t expert = 0; expert < source.experts; ++expert) {
    const uint64_t own = mixed(seed, static_cast<uint64_t>(expert));
    codes_.push_back(std::make_unique<DummyFloat4>(own, spread_));
    WeightPart& part = out.emplace_back();
    part.n = source.n();
    part.k = source.k;
    part.codes = codes_.back().get();
  }
  return out;
}

std::vector<WeightPart> DummyWeights::parts(const MatrixSource& source) {
  if (source.quant.float4) return float4_parts(source);
  const int64_t k = source.k;
  // Half of the pool is for the rows of a part, the other half for where the part begins.
  const int64_t size = std::max(kPoolSize, 2 * k);
  const int64_t rows = size / 2 / k;
  fill_pool(static_cast<size_t>(size));
  const uint64_t seed = seed_of(source.parts.front().name);
  const int64_t count = source.n();
  std::vector<WeightPart> out;
  for (int64_t expert = 0; expert < source.experts; ++expert) {
    for (int64_t first = 0; first < count; first += rows) {
      const int64_t n = std::min(rows, count - first);
      const auto begins = static_cast<uint64_t>(size - n * k + 1);
      const auto place = static_cast<uint64_t>(expert * count + first);
      out.push_back({.data = pool_.data() + mixed(seed, place) % begins,
                     .dtype = DType::kF32,
                     .n = n,
                     .k = k,
                     .transposed = false,
                     .row_stride = k});
    }
  }
  return out;
}

std::vector<float> DummyWeights::numbers(const VectorSource& source) {
  std::vector<float> out(static_cast<size_t>(source.n()), 1.0f);
  if (source.is_norm) return out;
  const uint64_t seed = seed_of(source.parts.front().name);
  const float range = spread_ * std::sqrt(3.0f);
  for (size_t i = 0; i < out.size(); ++i) out[i] = range * uniform(mixed(seed, i));
  return out;
}

void DummyWeights::fill_pool(size_t size) {
  const float range = spread_ * std::sqrt(3.0f);
  for (size_t i = pool_.size(); i < size; ++i) pool_.push_back(range * uniform(mixed(0, i)));
}

}  // namespace headrace
