#pragma once

#include <cstdint>

#include "benchmarks/cuda/device/bench_device.h"

namespace headrace::bench {

/// The read bandwidth of the device's memory as a kernel of our own gets it, which does nothing but
/// read a buffer much larger than the L2 cache.
class ReadLimit {
 public:
  /// Tries a few grids and keeps the fastest. `bytes`: a multiple of 16.
  ReadLimit(BenchDevice& device, size_t bytes);

  /// To be raced beside what is held against it; one turn reads bytes().
  Contestant contestant() const;
  size_t bytes() const { return data_.size() * sizeof(uint32_t); }
  /// Bytes per second, measured now.
  double measure();
  /// The xor of all words, read back, in the test's interest.
  uint32_t checksum();
  const uint32_t* data() const { return data_.data(); }

 private:
  void read(unsigned blocks) const;

  BenchDevice& device_;
  DeviceArray<uint32_t> data_;
  DeviceArray<uint32_t> sinks_;
  unsigned blocks_ = 0;
};

}  // namespace headrace::bench
