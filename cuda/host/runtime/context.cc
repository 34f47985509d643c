#include "cuda/host/runtime/context.h"

#include "base/check.h"
#include "cuda/host/runtime/device_check.h"

namespace headrace::cuda {

CudaContext::CudaContext(CudaApi& api, int32_t device)
    : api_(api), device_(device), properties_(require_device(api, device)) {
  enter();
  check(api_.create_stream(&stream_), "making a stream");
}

CudaContext::~CudaContext() {
  shared_.reset();
  // What fails here has failed before: there is nobody to tell.
  static_cast<void>(api_.set_device(device_));
  if (stream_ != nullptr) static_cast<void>(api_.destroy_stream(stream_));
}

void CudaContext::enter() { check(api_.set_device(device_), "choosing the GPU"); }

void CudaContext::check(Status status, const char* what) {
  if (status == kSuccess) return;
  note_failure();
  throw_error(ErrorCode::kDevice, "GPU ", device_, " (", properties_.name, ") failed at ", what,
              ": ", api_.describe(status),
              lost() ? "; it can't go on: release the model, and load it in a new process." : ".");
}

// An error that stays is what every later call reports, too.
void CudaContext::note_failure() noexcept {
  unsettled_.store(true, std::memory_order_relaxed);
  size_t free_bytes = 0, total_bytes = 0;
  if (api_.memory_info(&free_bytes, &total_bytes) != kSuccess) {
    lost_.store(true, std::memory_order_relaxed);
  }
}

void CudaContext::settle() {
  if (unsettled_.exchange(false, std::memory_order_relaxed)) wait();
}

// Of all exchanges between GPUs that some rank hasn't launched, the first one's late ranks have
// only earlier ones on their streams, which end: so each of them gets to launch it.
void CudaContext::finish_shared_work() {
  if (shared_ != nullptr) {
    const auto no_recording = record_alone();
    wait();
  }
  finish_others_work();
}

void CudaContext::share_work() {
  enter();
  shared_ = std::make_unique<SharedStream>(api_, device_, stream_);
}

void CudaContext::wait() { check(api_.synchronize(stream_), "waiting for its work"); }

}  // namespace headrace::cuda
