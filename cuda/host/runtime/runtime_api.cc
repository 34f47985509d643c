#include "cuda/host/runtime/runtime_api.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "base/check.h"
#include "cuda/host/runtime/shared_work.h"
#include "cuda/kernels/loading.h"
#include "cuda/kernels/probe.h"

namespace headrace::cuda {

namespace {

static_assert(kErrorMemoryAllocation == cudaErrorMemoryAllocation);
static_assert(kErrorInsufficientDriver == cudaErrorInsufficientDriver);
static_assert(kErrorInvalidDeviceFunction == cudaErrorInvalidDeviceFunction);
static_assert(kErrorNoDevice == cudaErrorNoDevice);
static_assert(kErrorNoKernelImage == cudaErrorNoKernelImageForDevice);

constexpr size_t kMaxPitch = 0x7fffffff;

cudaMemcpyKind copy_kind(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kDeviceToDevice:
      break;
  }
  return cudaMemcpyDeviceToDevice;
}

std::string hexadecimal(std::span<const char> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    out += kDigits[static_cast<uint8_t>(byte) / 16];
    out += kDigits[static_cast<uint8_t>(byte) % 16];
  }
  return out;
}

/// The file that this code is from: builds differ in its size or time.
std::string library_file() {
  Dl_info found{};
  struct stat status{};
  if (::dladdr(reinterpret_cast<const void*>(&runtime_api), &found) == 0 ||
      found.dli_fname == nullptr || ::stat(found.dli_fname, &status) != 0) {
    return "an unknown file";
  }
  return str_cat(found.dli_fname, " ", status.st_size, " ", status.st_mtim.tv_sec, ".",
                 status.st_mtim.tv_nsec);
}

/// What the kernel module says of itself; the driver's version alone doesn't tell releases apart.
std::string driver_text() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  int version = 0;
  static_cast<void>(cudaDriverGetVersion(&version));
  return str_cat(line, " ", version);
}

class RuntimeApi final : public CudaApi {
 public:
  RuntimeApi() {
    before_loading.store(
        [](int device, Stream stream) { finish_others_work(runtime_api(), device, stream); });
  }

  std::string describe(Status status) const override {
    const auto error = static_cast<cudaError_t>(status);
    return str_cat(cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  }

  Status driver_version(int* version) override { return done(cudaDriverGetVersion(version)); }
  Status runtime_version(int* version) override { return done(cudaRuntimeGetVersion(version)); }
  Status device_count(int* count) override { return done(cudaGetDeviceCount(count)); }

  Status device_properties(int device, DeviceProperties* properties) override {
    cudaDeviceProp found;
    const cudaError_t status = cudaGetDeviceProperties(&found, device);
    if (status != cudaSuccess) return done(status);
    *properties = {found.name,           found.major,
                   found.minor,          found.multiProcessorCount,
                   found.totalGlobalMem, hexadecimal(found.uuid.bytes)};
    return kSuccess;
  }

  Status set_device(int device) override { return done(cudaSetDevice(device)); }
  Status current_device(int* device) override { return done(cudaGetDevice(device)); }
  Status find_kernels() override { return done(static_cast<cudaError_t>(probe_kernels())); }
  std::string architectures() const override { return HEADRACE_CUDA_BUILT_FOR; }
  std::string build() const override { return str_cat(library_file(), "\n", driver_text()); }
  Status can_reach(int device, int peer, bool* can) override {
    int found = 0;
    const cudaError_t status = cudaDeviceCanAccessPeer(&found, device, peer);
    *can = status == cudaSuccess && found != 0;
    return done(status);
  }
  Status reach(int peer) override {
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    return done(status) == cudaErrorPeerAccessAlreadyEnabled ? kSuccess : status;
  }
  Status memory_info(size_t* free_bytes, size_t* total_bytes) override {
    return done(cudaMemGetInfo(free_bytes, total_bytes));
  }

  Status malloc_device(void** data, size_t bytes) override { return done(cudaMalloc(data, bytes)); }
  Status free_device(void* data) override { return done(cudaFree(data)); }
  Status malloc_pinned(void** data, size_t bytes) override {
    return done(cudaMallocHost(data, bytes));
  }
  Status free_pinned(void* data) override { return done(cudaFreeHost(data)); }

  // Other users of the process's default stream are neither waited for nor held up.
  Status create_stream(Stream* stream) override {
    return done(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  Status destroy_stream(Stream stream) override { return done(cudaStreamDestroy(stream)); }
  Status synchronize(Stream stream) override { return done(cudaStreamSynchronize(stream)); }
  Status create_event(Event* event) override {
    return done(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }
  Status destroy_event(Event event) override { return done(cudaEventDestroy(event)); }
  Status record(Event event, Stream stream) override {
    return done(cudaEventRecord(event, stream));
  }
  Status synchronize_event(Event event) override { return done(cudaEventSynchronize(event)); }
  Status query_event(Event event, bool* ended) override {
    const cudaError_t status = cudaEventQuery(event);
    *ended = status == cudaSuccess;
    return done(status) == cudaErrorNotReady ? kSuccess : status;
  }
  Status wait_event(Stream stream, Event event) override {
    return done(cudaStreamWaitEvent(stream, event, 0));
  }

  Status copy(void* to, const void* from, size_t bytes, CopyKind kind, Stream stream) override {
    return done(cudaMemcpyAsync(to, from, bytes, copy_kind(kind), stream));
  }
  // Beyond the largest pitch that copy engines take, one by one.
  Status copy_rows(const CopyRows& rows, CopyKind kind, Stream stream) override {
    if (std::max(rows.to_pitch, rows.from_pitch) <= kMaxPitch) {
      return done(cudaMemcpy2DAsync(rows.to, rows.to_pitch, rows.from, rows.from_pitch, rows.bytes,
                                    rows.count, copy_kind(kind), stream));
    }
    Status status = kSuccess;
    for (size_t i = 0; i < rows.count && status == kSuccess; ++i) {
      status = copy(static_cast<std::byte*>(rows.to) + i * rows.to_pitch,
                    static_cast<const std::byte*>(rows.from) + i * rows.from_pitch, rows.bytes,
                    kind, stream);
    }
    return status;
  }
  Status fill_zero(void* data, size_t bytes, Stream stream) override {
    return done(cudaMemsetAsync(data, 0, bytes, stream));
  }

  Status begin_capture(Stream stream) override {
    return done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  Status end_capture(Stream stream, Graph* graph) override {
    return done(cudaStreamEndCapture(stream, graph));
  }
  Status instantiate(GraphExec* exec, Graph graph) override {
    return done(cudaGraphInstantiate(exec, graph, 0));
  }
  Status upload(GraphExec exec, Stream stream) override {
    return done(cudaGraphUpload(exec, stream));
  }
  Status launch(GraphExec exec, Stream stream) override {
    return done(cudaGraphLaunch(exec, stream));
  }
  Status destroy_graph(Graph graph) override { return done(cudaGraphDestroy(graph)); }
  Status destroy_exec(GraphExec exec) override { return done(cudaGraphExecDestroy(exec)); }

 private:
  // The runtime also keeps the last error for the thread: reported here, it must not show up again
  // behind an innocent launch.
  static Status done(cudaError_t status) {
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    return status;
  }
};

}  // namespace

CudaApi& runtime_api() {
  static RuntimeApi api;
  return api;
}

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  throw_error(ErrorCode::kDevice, "the GPU refused kernel ", kernel, ": ",
              runtime_api().describe(status));
}

}  // namespace headrace::cuda
