#pragma once

// The calls of the CUDA runtime that the host side makes, behind a table, so that all of it runs in
// tests against a fake (tests/cuda/host/support/fake_cuda_api.h). runtime_api.cc is the real one.
//
// Threads: any thread may call any method; like CUDA's own, they act on the device that the calling
// thread has set. Methods returning Status return cudaError_t's numbers and leave their outputs
// alone unless it is kSuccess.

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/host/runtime/cuda_check.h"

struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace headrace::cuda {

using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;

using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kErrorMemoryAllocation = 2;
inline constexpr Status kErrorInsufficientDriver = 35;
inline constexpr Status kErrorInvalidDeviceFunction = 98;
inline constexpr Status kErrorNoDevice = 100;
inline constexpr Status kErrorNoKernelImage = 209;

enum class CopyKind : uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

/// `count` rows of `bytes` each, every pitch bytes apart.
struct CopyRows {
  void* to = nullptr;
  size_t to_pitch = 0;
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t bytes = 0;
  size_t count = 0;
};

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  size_t total_bytes = 0;
  std::string uuid;  ///< in hexadecimal
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;

  /// "cudaErrorNoDevice: no CUDA-capable device is detected".
  virtual std::string describe(Status status) const = 0;

  /// CUDA versions as 1000 * major + 10 * minor; a driver's is 0 where there is none.
  virtual Status driver_version(int* version) = 0;
  virtual Status runtime_version(int* version) = 0;
  virtual Status device_count(int* count) = 0;
  virtual Status device_properties(int device, DeviceProperties* properties) = 0;
  virtual Status set_device(int device) = 0;
  /// The calling thread's, which set_device() chose.
  virtual Status current_device(int* device) = 0;
  /// Whether the build's kernels run on the current device: kErrorNoKernelImage or
  /// kErrorInvalidDeviceFunction if they are for others.
  virtual Status find_kernels() = 0;
  /// What the kernels were compiled for: "80-real, 90a-real".
  virtual std::string architectures() const = 0;
  /// Which build of the kernels this is, and which driver, as far as the system tells: other text
  /// for others.
  virtual std::string build() const = 0;
  /// Whether `device` can reach memory of `peer`.
  virtual Status can_reach(int device, int peer, bool* can) = 0;
  /// Lets the current device reach memory of `peer`; once more is no error.
  virtual Status reach(int peer) = 0;
  virtual Status memory_info(size_t* free_bytes, size_t* total_bytes) = 0;

  virtual Status malloc_device(void** data, size_t bytes) = 0;
  virtual Status free_device(void* data) = 0;
  /// Page-locked host memory.
  virtual Status malloc_pinned(void** data, size_t bytes) = 0;
  virtual Status free_pinned(void* data) = 0;

  virtual Status create_stream(Stream* stream) = 0;
  virtual Status destroy_stream(Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;
  virtual Status create_event(Event* event) = 0;
  virtual Status destroy_event(Event event) = 0;
  virtual Status record(Event event, Stream stream) = 0;
  virtual Status synchronize_event(Event event) = 0;
  /// Whether what is in front of the event has ended.
  virtual Status query_event(Event event, bool* done) = 0;
  /// What `stream` gets from now on runs behind what is in front of the event.
  virtual Status wait_event(Stream stream, Event event) = 0;

  /// Host memory of an asynchronous copy is pinned.
  virtual Status copy(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) = 0;
  virtual Status copy_rows(const CopyRows& rows, CopyKind kind, Stream stream) = 0;
  virtual Status fill_zero(void* data, size_t bytes, Stream stream) = 0;

  /// Captures what this thread launches on `stream`.
  virtual Status begin_capture(Stream stream) = 0;
  virtual Status end_capture(Stream stream, Graph* graph) = 0;
  virtual Status instantiate(GraphExec* exec, Graph graph) = 0;
  /// Takes to the device what its first launch would.
  virtual Status upload(GraphExec exec, Stream stream) = 0;
  virtual Status launch(GraphExec exec, Stream stream) = 0;
  virtual Status destroy_graph(Graph graph) = 0;
  virtual Status destroy_exec(GraphExec exec) = 0;
};

}  // namespace headrace::cuda
