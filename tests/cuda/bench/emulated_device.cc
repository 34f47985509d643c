#include "emulated_device.h"

#include <chrono>
#include <cstring>
#include <new>

namespace headrace::bench {

namespace {

class EmulatedRecording final : public Recording {
 public:
  explicit EmulatedRecording(std::function<void()> launches) : launches_(std::move(launches)) {}
  double run() override {
    const auto begin = std::chrono::steady_clock::now();
    launches_();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::function<void()> launches_;
};

class EmulatedDevice final : public BenchDevice {
 public:
  const DeviceTraits& traits() const override { return traits_; }
  std::shared_ptr<void> allocate(size_t bytes) override {
    constexpr std::align_val_t kAlign{256};
    void* const memory = ::operator new(bytes, kAlign);
    std::memset(memory, 0xff, bytes);
    return {memory, [](void* p) { ::operator delete(p, kAlign); }};
  }
  void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  cuda::Stream stream() override { return nullptr; }
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override {
    return std::make_unique<EmulatedRecording>(launches);
  }
  void profile(Recording& recording) override { recording.run(); }

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  DeviceTraits traits_ = {"an emulation", 1, 1, true, size_t{1} << 12, size_t{1} << 30};
};

}  // namespace

std::unique_ptr<BenchDevice> make_emulated_device() { return std::make_unique<EmulatedDevice>(); }

}  // namespace headrace::bench
