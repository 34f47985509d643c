#pragma once

// The GPU as the benchmarks use it: memory, and launches that are timed. On a GPU: CUDA graphs and
// events (gpu_device.cc). In tests: the emulation and the host's clock (emulated_device.cc).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::bench {

struct DeviceTraits {
  std::string name;
  int32_t gpus = 1;  ///< of the machine; the first one is this
  int32_t multiprocessors = 0;
  bool has_wgmma = false;
  size_t l2_bytes = 0;
  size_t free_bytes = 0;
};

/// Launches that were recorded once, to be run many times.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Runs them all, waits, and says how many seconds they took on the device.
  virtual double run() = 0;
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual const DeviceTraits& traits() const = 0;
  /// Aligned to 256; throws headrace::Error(kOutOfMemory). Owners die before the device.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  /// Waits for all launches first.
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  virtual cuda::Stream stream() = 0;
  /// Calls `launches`, which launches on stream() and does nothing else there.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& launches) = 0;
  /// Runs it once for a profiler, which sees nothing else.
  virtual void profile(Recording& recording) = 0;
};

/// Throws headrace::Error(kDevice) saying what is missing where there is no usable GPU.
std::unique_ptr<BenchDevice> make_gpu_device();

/// Device memory of `count` Ts.
template <class T>
class DeviceArray {
 public:
  DeviceArray(BenchDevice& device, size_t count)
      : owner_(device.allocate(count * sizeof(T))), count_(count) {}
  DeviceArray(BenchDevice& device, std::span<const T> values) : DeviceArray(device, values.size()) {
    device.upload(data(), values.data(), values.size_bytes());
  }
  DeviceArray(BenchDevice& device, const std::vector<T>& values)
      : DeviceArray(device, std::span<const T>(values)) {}
  T* data() const { return static_cast<T*>(owner_.get()); }
  size_t size() const { return count_; }

 private:
  std::shared_ptr<void> owner_;
  size_t count_;
};

/// One of those that are timed in turns.
struct Contestant {
  /// Launches the work once; `turn` counts up, to take the next of several inputs: none is still in
  /// the L2 cache when its turn comes again.
  std::function<void(int turn)> launch;
  /// Launches what must be done again before each timed run; not timed. May be empty.
  std::function<void()> prepare{};
};

struct RaceOptions {
  int turns = 16;        ///< of a contestant in a timed run
  int rounds = 11;       ///< in which each contestant has a run; one more, before, is warm-up
  bool profile = false;  ///< the first contestant's run is profiled, too
};

/// Median seconds of one launch of each contestant, interleaved: they see the same clocks.
std::vector<double> race(BenchDevice& device, const std::vector<Contestant>& contestants,
                         const RaceOptions& options);

}  // namespace headrace::bench
