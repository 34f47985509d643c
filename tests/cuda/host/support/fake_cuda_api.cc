#include "cuda/host/support/fake_cuda_api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "cuda/emulation/submit.h"
#include "cuda/host/runtime/shared_work.h"
#include "cuda/host/support/fake_stream.h"
#include "cuda/host/support/fresh_memory.h"

namespace headrace::cuda {

namespace {

using Work = FakeStream::Work;

thread_local int current_device_of_thread = 0;

struct FakeEvent {
  FakeStream* stream = nullptr;
  uint64_t end = 0;  // of what is in front of it
  bool runs_more = false;
};

using FakeGraph = std::vector<Work>;

FakeStream* fake(Stream stream) { return reinterpret_cast<FakeStream*>(stream); }
FakeEvent* fake(Event event) { return reinterpret_cast<FakeEvent*>(event); }
FakeGraph* fake(Graph graph) { return reinterpret_cast<FakeGraph*>(graph); }
FakeGraph* fake(GraphExec exec) { return reinterpret_cast<FakeGraph*>(exec); }

constexpr Status kInvalidValue = 1;

}  // namespace

void submit(Stream stream, const void* kernel, std::function<void()> work) {
  if (stream == nullptr) return work();
  EXPECT_EQ(fake(stream)->device, current_device_of_thread)
      << "a kernel for another device than the thread's";
  const Status status = fake(stream)->api->enter("kernel");
  if (status != kSuccess) {  // as check_launch() has it
    throw_error(ErrorCode::kDevice,
                "the GPU refused a kernel: ", fake(stream)->api->describe(status));
  }
  fake(stream)->api->load_kernel(stream, kernel);
  fake(stream)->api->pass_waits();
  fake(stream)->put([on = fake(stream), work = std::move(work)] {
    if (on->api->silent_device != on->device) work();
  });
}

FakeCudaApi::FakeCudaApi() : devices{{"Fake GPU", 9, 0, 4, size_t{1} << 30, "00ff"}} {}

void FakeCudaApi::add_devices(int count) {
  for (int i = 0; i < count; ++i) devices.push_back(devices.front());
}

void FakeCudaApi::run_all() {
  const std::lock_guard lock(mutex_);
  for (const Stream stream : streams_) fake(stream)->kick();
}

FakeCudaApi::~FakeCudaApi() {
  EXPECT_TRUE(device_memory_.empty()) << device_bytes() << " bytes of device memory leak";
  EXPECT_TRUE(pinned_memory_.empty()) << "pinned memory leaks";
  EXPECT_TRUE(streams_.empty()) << "streams leak";
  EXPECT_EQ(live_handles_, 0) << "events or graphs leak";
}

void FakeCudaApi::fail(const std::string& method, Status status, int nth, bool sticky) {
  const std::lock_guard lock(mutex_);
  failures_.erase(method);
  failures_.insert({method, {status, nth, sticky}});
}

void FakeCudaApi::also_fail(const std::string& method, Status status, int nth) {
  const std::lock_guard lock(mutex_);
  failures_.insert({method, {status, nth, false}});
}

bool FakeCudaApi::is_capturing(Stream stream) {
  const std::lock_guard lock(fake(stream)->mutex);
  return fake(stream)->capturing;
}

size_t FakeCudaApi::device_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [data, size] : device_memory_) bytes += size;
  return bytes;
}

int FakeCudaApi::calls(const std::string& method) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(method);
  return found == calls_.end() ? 0 : found->second;
}

void FakeCudaApi::reset_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
}

Status FakeCudaApi::enter(const char* method, bool touches_device) {
  const std::lock_guard lock(mutex_);
  ++calls_[method];
  if (touches_device && sticky_ != kSuccess) return sticky_;
  Status status = kSuccess;
  const auto [first, end] = failures_.equal_range(method);
  for (auto at = first; at != end;) {
    const auto failure = at++;
    if (--failure->second.nth > 0) continue;
    status = failure->second.status;
    if (failure->second.sticky) sticky_ = status;
    failures_.erase(failure);
  }
  return status;
}

std::string FakeCudaApi::describe(Status status) const {
  if (!has_memory_for_text) throw std::bad_alloc();
  return str_cat("fake error ", status);
}

Status FakeCudaApi::driver_version(int* version) {
  *version = driver;
  return enter("driver_version", false);
}

Status FakeCudaApi::runtime_version(int* version) {
  *version = runtime;
  return enter("runtime_version", false);
}

Status FakeCudaApi::device_count(int* count) {
  *count = static_cast<int>(devices.size());
  const Status status = enter("device_count", false);
  return status == kSuccess && devices.empty() ? kErrorNoDevice : status;
}

Status FakeCudaApi::device_properties(int device, DeviceProperties* properties) {
  *properties = devices.at(static_cast<size_t>(device));
  return enter("device_properties", false);
}

Status FakeCudaApi::set_device(int device) {
  const Status status = enter("set_device", false);
  if (status == kSuccess) current_device_of_thread = device;
  return status;
}

Status FakeCudaApi::current_device(int* device) {
  *device = current_device_of_thread;
  return enter("current_device", false);
}

Status FakeCudaApi::find_kernels() { return enter("find_kernels", false); }

Status FakeCudaApi::can_reach(int, int, bool* can) {
  *can = reachable;
  return enter("can_reach");
}

Status FakeCudaApi::memory_info(size_t* free_bytes, size_t* total) {
  const Status status = enter("memory_info");
  if (status != kSuccess) return status;
  const size_t held = device_bytes() + others_bytes;
  *free_bytes = total_bytes - std::min(total_bytes, held);
  *total = total_bytes;
  return kSuccess;
}

Status FakeCudaApi::allocate(std::map<void*, size_t>& live, void** data, size_t bytes) {
  void* const memory = fresh_memory(bytes);
  const std::lock_guard lock(mutex_);
  live[memory] = bytes;
  *data = memory;
  return kSuccess;
}

Status FakeCudaApi::release(std::map<void*, size_t>& live, void* data) {
  const std::lock_guard lock(mutex_);
  if (data == nullptr) return kSuccess;
  if (live.erase(data) == 0) {
    ADD_FAILURE() << "memory freed twice, or foreign";
    return kInvalidValue;
  }
  std::free(data);
  return kSuccess;
}

Status FakeCudaApi::malloc_device(void** data, size_t bytes) {
  const Status status = enter("malloc_device");
  if (status != kSuccess) return status;
  wait_within_call();
  const size_t held = device_bytes() + others_bytes;
  if (held > total_bytes || bytes > total_bytes - held) return kErrorMemoryAllocation;
  return allocate(device_memory_, data, bytes);
}

std::set<Stream> FakeCudaApi::open_streams() const {
  const std::lock_guard lock(mutex_);
  return streams_;
}

// A lost device runs nothing any more.
void FakeCudaApi::abandon_if_lost() {
  {
    const std::lock_guard lock(mutex_);
    if (sticky_ == kSuccess) return;
  }
  for (const Stream stream : open_streams()) fake(stream)->abandon();
}

void FakeCudaApi::wait_within_call() {
  if (!waits_within_calls) return;
  const std::lock_guard waits(driver_);
  for (const Stream stream : open_streams()) {
    if (fake(stream)->device == current_device_of_thread) fake(stream)->drain();
  }
}

// As prepare_kernel() does, it waits for streams before the call that may wait for the device.
void FakeCudaApi::load_kernel(Stream stream, const void* kernel) {
  if (!waits_within_calls || kernel == nullptr || fake(stream)->is_capturing()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!loaded_kernels_.emplace(current_device_of_thread, kernel).second) return;
  }
  fake(stream)->drain();
  finish_others_work(*this, current_device_of_thread, stream);
  wait_within_call();
}

void FakeCudaApi::pass_waits() {
  if (!waits_within_calls) return;
  if (driver_.try_lock_for(std::chrono::seconds(10))) return driver_.unlock();
  ADD_FAILURE() << "a launch waits for a call that waits for a device";
}

// And takes its memory along: nothing leaks where the call fails.
Status FakeCudaApi::free_device(void* data) {
  abandon_if_lost();
  const Status status = enter("free_device");
  const Status freed = release(device_memory_, data);
  return status != kSuccess ? status : freed;
}

Status FakeCudaApi::malloc_pinned(void** data, size_t bytes) {
  const Status status = enter("malloc_pinned");
  wait_within_call();
  return status != kSuccess ? status : allocate(pinned_memory_, data, bytes);
}

Status FakeCudaApi::free_pinned(void* data) {
  abandon_if_lost();
  const Status status = enter("free_pinned");
  const Status freed = release(pinned_memory_, data);
  return status != kSuccess ? status : freed;
}

Status FakeCudaApi::create_stream(Stream* stream) {
  const Status status = enter("create_stream");
  if (status != kSuccess) return status;
  *stream = reinterpret_cast<Stream>(new FakeStream(this, current_device_of_thread));
  const std::lock_guard lock(mutex_);
  streams_.insert(*stream);
  return kSuccess;
}

Status FakeCudaApi::destroy_stream(Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  delete fake(stream);
  return enter("destroy_stream");
}

Status FakeCudaApi::synchronize(Stream stream) {
  const Status status = enter("synchronize");
  if (status != kSuccess) return status;
  EXPECT_FALSE(fake(stream)->is_capturing()) << "synchronize in a capture";
  fake(stream)->drain();
  return kSuccess;
}

Status FakeCudaApi::create_event(Event* event) {
  const Status status = enter("create_event");
  if (status != kSuccess) return status;
  *event = reinterpret_cast<Event>(new FakeEvent);
  ++live_handles_;
  return kSuccess;
}

Status FakeCudaApi::destroy_event(Event event) {
  delete fake(event);
  --live_handles_;
  return enter("destroy_event");
}

Status FakeCudaApi::record(Event event, Stream stream) {
  {
    const std::lock_guard lock(fake(stream)->mutex);
    fake(event)->stream = fake(stream);
    fake(event)->end = fake(stream)->num_put;
  }
  return enter("record");
}

Status FakeCudaApi::synchronize_event(Event event) {
  const Status status = enter("synchronize_event");
  FakeStream* const stream = fake(event)->stream;
  if (status != kSuccess || stream == nullptr) return status;
  const std::lock_guard runs(stream->running);
  if (stream->has_done(fake(event)->end)) return kSuccess;
  stream->drain(fake(event)->end);
  if (!stream->is_empty()) ++covered_waits_;
  fake(event)->runs_more = !fake(event)->runs_more;
  if (fake(event)->runs_more) stream->drain();
  return kSuccess;
}

// The device goes on by itself meanwhile.
Status FakeCudaApi::query_event(Event event, bool* done) {
  const Status status = enter("query_event");
  FakeStream* const stream = fake(event)->stream;
  *done = true;
  if (status != kSuccess || stream == nullptr) return status;
  stream->kick();
  *done = stream->has_done(fake(event)->end);
  return kSuccess;
}

// Work of one stream runs the other's: as on a GPU, neither waits for the host.
Status FakeCudaApi::wait_event(Stream stream, Event event) {
  const Status status = enter("wait_event");
  FakeStream* const other = fake(event)->stream;
  if (status != kSuccess || other == nullptr || other == fake(stream)) return status;
  fake(stream)->put([other, end = fake(event)->end] { other->reach(end); });
  return kSuccess;
}

Status FakeCudaApi::copy(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) {
  const Status status = enter("copy");
  if (status != kSuccess) return status;
  expect_pinned(to, from, bytes, kind);
  fake(stream)->put([=] { std::memmove(to, from, bytes); });
  return kSuccess;
}

Status FakeCudaApi::copy_rows(const CopyRows& rows, CopyKind kind, Stream stream) {
  const Status status = enter("copy_rows");
  if (status != kSuccess) return status;
  for (size_t i = 0; i < rows.count; ++i) {
    char* const to = static_cast<char*>(rows.to) + i * rows.to_pitch;
    const char* const from = static_cast<const char*>(rows.from) + i * rows.from_pitch;
    expect_pinned(to, from, rows.bytes, kind);
    fake(stream)->put([to, from, bytes = rows.bytes] { std::memmove(to, from, bytes); });
  }
  return kSuccess;
}

void FakeCudaApi::expect_pinned(const void* to, const void* from, size_t bytes,
                                CopyKind kind) const {
  const std::lock_guard lock(mutex_);
  const auto is_pinned = [&](const void* data) {
    auto next = pinned_memory_.upper_bound(const_cast<void*>(data));
    if (next == pinned_memory_.begin()) return false;
    --next;
    return static_cast<const char*>(data) + bytes <= static_cast<char*>(next->first) + next->second;
  };
  EXPECT_TRUE(kind != CopyKind::kHostToDevice || is_pinned(from)) << "copy from pageable memory";
  EXPECT_TRUE(kind != CopyKind::kDeviceToHost || is_pinned(to)) << "copy to pageable memory";
}

Status FakeCudaApi::fill_zero(void* data, size_t bytes, Stream stream) {
  const Status status = enter("fill_zero");
  if (status != kSuccess) return status;
  fake(stream)->put([=] { std::memset(data, 0, bytes); });
  return kSuccess;
}

Status FakeCudaApi::begin_capture(Stream stream) {
  const Status status = enter("begin_capture");
  if (status != kSuccess) return status;
  const std::lock_guard lock(fake(stream)->mutex);
  fake(stream)->capturing = true;
  return kSuccess;
}

Status FakeCudaApi::end_capture(Stream stream, Graph* graph) {
  FakeStream& from = *fake(stream);
  std::vector<Work> captured;
  {
    const std::lock_guard lock(from.mutex);
    from.capturing = false;
    captured = std::exchange(from.captured, {});
  }
  const Status status = enter("end_capture");
  if (status != kSuccess) return status;
  *graph = reinterpret_cast<Graph>(new FakeGraph(std::move(captured)));
  ++live_handles_;
  return kSuccess;
}

Status FakeCudaApi::instantiate(GraphExec* exec, Graph graph) {
  const Status status = enter("instantiate");
  if (status != kSuccess) return status;
  wait_within_call();
  *exec = reinterpret_cast<GraphExec>(new FakeGraph(*fake(graph)));
  ++live_handles_;
  return kSuccess;
}

Status FakeCudaApi::upload(GraphExec, Stream) { return enter("upload"); }

Status FakeCudaApi::launch(GraphExec exec, Stream stream) {
  const Status status = enter("launch");
  if (status != kSuccess) return status;
  pass_waits();
  for (const Work& work : *fake(exec)) fake(stream)->put(work);
  return kSuccess;
}

Status FakeCudaApi::destroy_graph(Graph graph) {
  delete fake(graph);
  --live_handles_;
  return enter("destroy_graph");
}

Status FakeCudaApi::destroy_exec(GraphExec exec) {
  delete fake(exec);
  --live_handles_;
  return enter("destroy_exec");
}

}  // namespace headrace::cuda
