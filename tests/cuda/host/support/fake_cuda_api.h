#pragma once

// A CUDA runtime made of host memory. Streams are queues: what is put on one runs when the stream,
// or an event behind it, is waited for, and not before, as late as a GPU may be. So a host buffer
// that is changed too early, or a result that is read too early, shows in every run. Every other
// wait for an event also runs what is behind it, which could have run, too. Several devices are
// streams that run beside each other once one of them waits for another (run_all).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host/runtime/cuda_api.h"

namespace headrace::cuda {

inline constexpr Status kFakeLaunchFailure = 719;  ///< cudaErrorLaunchFailure: sticky

class FakeCudaApi final : public CudaApi {
 public:
  FakeCudaApi();
  /// Adds a failure to the current test for everything that was not given back.
  ~FakeCudaApi() override;

  // What the machine looks like.
  int driver = 13000, runtime = 13000;
  std::vector<DeviceProperties> devices;  ///< one of compute capability 9.0
  std::string build_name = "a build";
  size_t total_bytes = size_t{1} << 30;
  bool reachable = true;            ///< devices reach each other's memory
  size_t others_bytes = 0;          ///< of total_bytes, held by other processes
  bool has_memory_for_text = true;  ///< false: describe() throws std::bad_alloc
  /// Kernels of that device do nothing, though calls succeed; -1: of none.
  std::atomic<int> silent_device{-1};
  /// Calls in which CUDA may wait for a device (taking memory, building a record, a kernel's first
  /// launch) do so, and hold up launches of all threads meanwhile. A launch that waits too long for
  /// one fails the test.
  bool waits_within_calls = false;

  /// More devices like the first one.
  void add_devices(int count);
  /// Devices run what is queued beside the threads that wait: what an emulated kernel needs that
  /// waits for another device (emulation::set_pause_outside).
  void run_all();

  /// Makes the `nth` call from now (1 = the next) of the method of that name fail; "kernel" is the
  /// launch of one. A sticky failure stays: every later call of any method that touches the device
  /// fails alike.
  void fail(const std::string& method, Status status, int nth = 1, bool sticky = false);
  /// The nth call, too.
  void also_fail(const std::string& method, Status status, int nth);

  static bool is_capturing(Stream stream);
  size_t device_bytes() const;  ///< allocated now
  int calls(const std::string& method) const;
  void reset_calls();
  /// Waits for events that had not come yet and that more work was queued behind.
  int covered_waits() const { return covered_waits_; }

  std::string describe(Status status) const override;
  Status driver_version(int* version) override;
  Status runtime_version(int* version) override;
  Status device_count(int* count) override;
  Status device_properties(int device, DeviceProperties* properties) override;
  Status set_device(int device) override;
  Status current_device(int* device) override;
  Status find_kernels() override;
  std::string architectures() const override { return "80-real, 90a-real"; }
  std::string build() const override { return build_name; }
  Status can_reach(int device, int peer, bool* can) override;
  Status reach(int peer) override { return peer < 0 ? 1 : enter("reach"); }
  Status memory_info(size_t* free_bytes, size_t* total) override;
  Status malloc_device(void** data, size_t bytes) override;
  Status free_device(void* data) override;
  Status malloc_pinned(void** data, size_t bytes) override;
  Status free_pinned(void* data) override;
  Status create_stream(Stream* stream) override;
  Status destroy_stream(Stream stream) override;
  Status synchronize(Stream stream) override;
  Status create_event(Event* event) override;
  Status destroy_event(Event event) override;
  Status record(Event event, Stream stream) override;
  Status synchronize_event(Event event) override;
  Status query_event(Event event, bool* done) override;
  Status wait_event(Stream stream, Event event) override;
  Status copy(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) override;
  Status copy_rows(const CopyRows& rows, CopyKind kind, Stream stream) override;
  Status fill_zero(void* data, size_t bytes, Stream stream) override;
  Status begin_capture(Stream stream) override;
  Status end_capture(Stream stream, Graph* graph) override;
  Status instantiate(GraphExec* exec, Graph graph) override;
  Status upload(GraphExec exec, Stream stream) override;
  Status launch(GraphExec exec, Stream stream) override;
  Status destroy_graph(Graph graph) override;
  Status destroy_exec(GraphExec exec) override;

  /// Counts the call; the status it must fail with, or kSuccess.
  Status enter(const char* method, bool touches_device = true);

 private:
  struct Failure {
    Status status;
    int nth;
    bool sticky;
  };

  /// Fails the test if host memory of the copy isn't pinned.
  void expect_pinned(const void* to, const void* from, size_t bytes, CopyKind kind) const;
  Status allocate(std::map<void*, size_t>& live, void** data, size_t bytes);
  Status release(std::map<void*, size_t>& live, void* data);
  std::set<Stream> open_streams() const;
  void abandon_if_lost();
  void wait_within_call();
  friend void submit(Stream stream, const void* kernel, std::function<void()> work);
  void pass_waits();
  void load_kernel(Stream stream, const void* kernel);

  mutable std::mutex mutex_;
  std::timed_mutex driver_;  // see waits_within_calls
  std::map<std::string, int> calls_;
  std::multimap<std::string, Failure> failures_;
  Status sticky_ = kSuccess;
  std::map<void*, size_t> device_memory_, pinned_memory_;
  std::set<Stream> streams_;
  std::set<std::pair<int, const void*>> loaded_kernels_;  // by device
  std::atomic<int> live_handles_{0};
  std::atomic<int> covered_waits_{0};
};

}  // namespace headrace::cuda
