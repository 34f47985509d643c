#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "benchmarks/cuda/device/bench_device.h"

namespace headrace::cuda {

// Launches may be under capture: nothing here may wait.
void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw_error(ErrorCode::kDevice, kernel, ": ", cudaGetErrorString(status));
  }
}

}  // namespace headrace::cuda

namespace headrace::bench {

namespace {

constexpr int kLeastMajor = 8;  // compute capability of Ampere

void require(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw_error(status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice,
              what, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

class GraphRecording final : public Recording {
 public:
  GraphRecording(cudaStream_t stream, const std::function<void()>& launches) : stream_(stream) {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    cudaGraph_t graph = nullptr;
    try {
      launches();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    require(cudaStreamEndCapture(stream, &graph), "end of capture");
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    require(made, "cudaGraphInstantiate");
    for (cudaEvent_t* event : {&begin_, &end_}) require(cudaEventCreate(event), "event");
  }
  GraphRecording(const GraphRecording&) = delete;
  GraphRecording& operator=(const GraphRecording&) = delete;
  ~GraphRecording() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaGraphExecDestroy(exec_);
  }

  double run() override {
    require(cudaEventRecord(begin_, stream_), "event");
    require(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
    require(cudaEventRecord(end_, stream_), "event");
    require(cudaEventSynchronize(end_), "a kernel");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_, end_), "event");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class GpuDevice final : public BenchDevice {
 public:
  GpuDevice() {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess || count == 0) {
      throw_error(ErrorCode::kDevice, "no CUDA device: ", cudaGetErrorString(found));
    }
    cudaDeviceProp properties;
    require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    if (properties.major < kLeastMajor) {
      throw_error(ErrorCode::kDevice, "no CUDA device that is new enough: ", properties.name,
                  " has compute capability ", properties.major, ".", properties.minor);
    }
    require(cudaSetDevice(0), "cudaSetDevice");
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    size_t free_bytes = 0, total_bytes = 0;
    require(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    traits_ = {properties.name,
               count,
               properties.multiProcessorCount,
               properties.major == 9,
               static_cast<size_t>(properties.l2CacheSize),
               free_bytes};
  }
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;
  ~GpuDevice() override { cudaStreamDestroy(stream_); }

  const DeviceTraits& traits() const override { return traits_; }

  std::shared_ptr<void> allocate(size_t bytes) override {
    void* data = nullptr;
    require(cudaMalloc(&data, bytes == 0 ? 1 : bytes), "cudaMalloc");
    return {data, [](void* memory) { cudaFree(memory); }};
  }
  void upload(void* to, const void* from, size_t bytes) override {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    require(cudaStreamSynchronize(stream_), "upload");
  }
  void download(void* to, const void* from, size_t bytes) override {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
    require(cudaStreamSynchronize(stream_), "download");
  }
  cuda::Stream stream() override { return stream_; }
  std::unique_ptr<Recording> record(const std::function<void()>& launches) override {
    return std::make_unique<GraphRecording>(stream_, launches);
  }
  void profile(Recording& recording) override {
    require(cudaProfilerStart(), "cudaProfilerStart");
    recording.run();
    require(cudaProfilerStop(), "cudaProfilerStop");
  }

 private:
  DeviceTraits traits_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<BenchDevice> make_gpu_device() { return std::make_unique<GpuDevice>(); }

}  // namespace headrace::bench
