#pragma once

// One GPU as one backend uses it: its API, its stream, and whether it still works.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cuda/host/runtime/cuda_api.h"
#include "cuda/host/runtime/shared_work.h"

namespace headrace::cuda {

/// Threads: any thread may call enter(), check() and lost(); the stream is the backend's.
class CudaContext {
 public:
  /// Throws what require_device throws, and Error(kDevice). `api` must outlive this.
  CudaContext(CudaApi& api, int32_t device);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  CudaApi& api() const noexcept { return api_; }
  int32_t device() const noexcept { return device_; }
  const DeviceProperties& properties() const noexcept { return properties_; }
  Stream stream() const noexcept { return stream_; }

  /// Makes this GPU the calling thread's. Call before any other call of the API on a thread that
  /// others may have used for another GPU. Throws Error(kDevice).
  void enter();
  /// Throws Error(kDevice) naming `what` unless the status is kSuccess. An error that stays (the
  /// GPU's work broke off, the GPU fell off the bus) makes the context lost.
  void check(Status status, const char* what);
  /// After a call that has failed: whether it is an error that stays makes the context lost.
  void note_failure() noexcept;
  /// If calls have failed since this was last called, waits for what they left on the stream.
  /// Throws Error(kDevice).
  void settle();
  /// Waits for everything on the stream. Throws Error(kDevice).
  void wait();
  /// From now on kernels on the stream may wait for other GPUs of this process.
  /// Before other threads use the context.
  void share_work();
  /// Before a call in which CUDA may wait for the GPU, and keep other threads of the process from
  /// launching anything meanwhile (taking memory): waits first, outside of it, for work that may
  /// wait for launches of other threads, this context's and others' on the GPU
  /// (finish_others_work). Throws Error(kDevice).
  void finish_shared_work();
  /// The same without this context's.
  void finish_others_work() { cuda::finish_others_work(api_, device_, stream_); }
  /// While it is held the stream is recorded: other threads' finish_shared_work() waits for its
  /// end, for a wait for the stream would end the recording instead.
  std::unique_lock<std::recursive_mutex> record_alone() {
    return std::unique_lock(recording_mutex_);
  }
  /// The stream is being captured, or no longer.
  void set_capturing(bool captures) {
    if (shared_ != nullptr) shared_->set_capturing(captures);
  }
  /// Whether nothing on this GPU can go on but giving it back.
  bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

 private:
  CudaApi& api_;
  const int32_t device_;
  const DeviceProperties properties_;
  Stream stream_ = nullptr;
  std::atomic<bool> lost_{false};
  std::atomic<bool> unsettled_{false};
  std::recursive_mutex recording_mutex_;  // who records and waits all the same gets CUDA's error
  std::unique_ptr<SharedStream> shared_;  ///< null: nothing on the stream waits for other GPUs
};

}  // namespace headrace::cuda
