#include "cuda/host/runtime/shared_work.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace headrace::cuda {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLongestWait(5);
constexpr std::chrono::microseconds kPause(50);

}  // namespace

struct SharedStream::Entry {
  CudaApi& api;
  const int device;
  Mutex mutex;
  Stream stream HEADRACE_GUARDED_BY(mutex);  // null: it is gone
  Event event HEADRACE_GUARDED_BY(mutex) = nullptr;
  bool captures HEADRACE_GUARDED_BY(mutex) = false;

  Entry(CudaApi& of, int number, Stream own) : api(of), device(number), stream(own) {
    if (api.create_event(&event) != kSuccess) event = nullptr;
  }

  /// Whether what was on the stream at the first call with this `marked`, false then, has ended.
  bool has_ended(bool* marked) {
    const MutexLock lock(mutex);
    if (stream == nullptr || event == nullptr) return true;
    if (!*marked && !captures) {
      if (api.record(event, stream) != kSuccess) return true;
      *marked = true;
    }
    bool done = false;
    return *marked && (api.query_event(event, &done) != kSuccess || done);
  }
};

namespace {

struct Streams {
  Mutex mutex;
  std::vector<std::shared_ptr<SharedStream::Entry>> entries HEADRACE_GUARDED_BY(mutex);
};

Streams& streams() {
  static Streams all;
  return all;
}

}  // namespace

SharedStream::SharedStream(CudaApi& api, int device, Stream stream)
    : entry_(std::make_shared<Entry>(api, device, stream)) {
  const MutexLock lock(streams().mutex);
  streams().entries.push_back(entry_);
}

SharedStream::~SharedStream() {
  {
    const MutexLock lock(streams().mutex);
    std::erase(streams().entries, entry_);
  }
  const MutexLock lock(entry_->mutex);
  entry_->stream = nullptr;
  if (entry_->event != nullptr) static_cast<void>(entry_->api.destroy_event(entry_->event));
}

void SharedStream::set_capturing(bool captures) {
  const MutexLock lock(entry_->mutex);
  entry_->captures = captures;
}

void finish_others_work(CudaApi& api, int device, Stream own) {
  std::vector<std::shared_ptr<SharedStream::Entry>> others;
  {
    const MutexLock lock(streams().mutex);
    for (const auto& entry : streams().entries) {
      if (&entry->api == &api && entry->device == device) others.push_back(entry);
    }
  }
  const auto deadline = Clock::now() + kLongestWait;
  for (const auto& other : others) {
    {
      const MutexLock lock(other->mutex);
      if (other->stream == own) continue;
    }
    for (bool marked = false; !other->has_ended(&marked) && Clock::now() < deadline;) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace headrace::cuda
