#include "benchmarks/cuda/device/read_limit.h"

#include <array>

#include "benchmarks/cuda/kernels/bench_kernels.h"

namespace headrace::bench {

namespace {

constexpr std::array kBlocksPerMultiprocessor = {2u, 4u, 8u, 16u, 32u};
constexpr RaceOptions kShort = {.turns = 2, .rounds = 5};

unsigned multiprocessors(BenchDevice& device) {
  return static_cast<unsigned>(device.traits().multiprocessors);
}

}  // namespace

ReadLimit::ReadLimit(BenchDevice& device, size_t bytes)
    : device_(device),
      data_(device, bytes / sizeof(uint32_t)),
      sinks_(device,
             size_t{kBlocksPerMultiprocessor.back()} * multiprocessors(device) * kReadThreads) {
  fill_uniform(reinterpret_cast<uint16_t*>(data_.data()), static_cast<int64_t>(2 * data_.size()), 1,
               device.stream());
  std::vector<Contestant> grids;
  for (const unsigned each : kBlocksPerMultiprocessor) {
    grids.push_back({[this, each](int) { read(each * multiprocessors(device_)); }});
  }
  const std::vector<double> seconds = race(device, grids, kShort);
  size_t best = 0;
  for (size_t i = 1; i < seconds.size(); ++i) {
    if (seconds[i] < seconds[best]) best = i;
  }
  blocks_ = kBlocksPerMultiprocessor[best] * multiprocessors(device);
}

void ReadLimit::read(unsigned blocks) const {
  read_all({.data = data_.data(), .bytes = bytes(), .sinks = sinks_.data(), .blocks = blocks},
           device_.stream());
}

Contestant ReadLimit::contestant() const {
  return {[this](int) { read(blocks_); }};
}

double ReadLimit::measure() {
  return static_cast<double>(bytes()) / race(device_, {contestant()}, kShort)[0];
}

uint32_t ReadLimit::checksum() {
  read(blocks_);
  std::vector<uint32_t> sinks(size_t{blocks_} * kReadThreads);
  device_.download(sinks.data(), sinks_.data(), sinks.size() * sizeof(uint32_t));
  uint32_t out = 0;
  for (const uint32_t sink : sinks) out ^= sink;
  return out;
}

}  // namespace headrace::bench
