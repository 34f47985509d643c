#include "cuda/host/runtime/device_check.h"

#include <string>

#include "base/check.h"

namespace headrace::cuda {

namespace {

std::string version_text(int version) { return str_cat(version / 1000, ".", version % 1000 / 10); }

[[noreturn]] void refuse(const std::string& why) {
  throw_error(ErrorCode::kUnsupported, "device cuda can't be used: ", why);
}

void require_driver(CudaApi& api) {
  int driver = 0, runtime = 0;
  const Status status = api.driver_version(&driver);
  if (status != kSuccess || driver == 0) {
    refuse(
        "no NVIDIA driver is installed (libcuda.so.1 isn't found); install one, give the "
        "container access to it, or use device cpu.");
  }
  // Within a major version, a driver runs what a later toolkit compiled for its GPU.
  if (api.runtime_version(&runtime) == kSuccess && driver / 1000 < runtime / 1000) {
    refuse(str_cat("the NVIDIA driver supports CUDA ", version_text(driver),
                   ", but this build needs ", runtime / 1000,
                   ".0 or later: update the driver, or use device cpu."));
  }
}

int count_devices(CudaApi& api) {
  int count = 0;
  const Status status = api.device_count(&count);
  if (status == kErrorNoDevice || (status == kSuccess && count == 0)) {
    refuse(
        "the driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu.");
  }
  if (status != kSuccess) refuse(str_cat(api.describe(status), "."));
  return count;
}

void require_kernels(CudaApi& api, int32_t device, const DeviceProperties& properties) {
  Status status = api.set_device(device);
  if (status == kSuccess) status = api.find_kernels();
  if (status == kErrorNoKernelImage || status == kErrorInvalidDeviceFunction) {
    refuse(str_cat("this build has no kernels for GPU ", device, " (", properties.name,
                   ", compute capability ", properties.major, ".", properties.minor,
                   "), but for the CUDA architectures ", api.architectures(),
                   ": use a build that has them (CMake's HEADRACE_CUDA_ARCHS), or device cpu."));
  }
  if (status != kSuccess) refuse(str_cat(api.describe(status), "."));
}

}  // namespace

DeviceProperties require_device(CudaApi& api, int32_t device) {
  require_driver(api);
  const int count = count_devices(api);
  if (device < 0 || device >= count) {
    refuse(str_cat("there is no GPU ", device, ": this machine has ", count,
                   count == 1 ? " (cuda:0)." : str_cat(" (cuda:0 to cuda:", count - 1, ").")));
  }
  DeviceProperties properties;
  const Status status = api.device_properties(device, &properties);
  if (status != kSuccess) refuse(str_cat(api.describe(status), "."));
  if (properties.major < kMinMajor) {
    refuse(str_cat("GPU ", device, " (", properties.name, ") has compute capability ",
                   properties.major, ".", properties.minor, ", but ", kMinMajor,
                   ".0 or later is needed: use another GPU or device cpu."));
  }
  require_kernels(api, device, properties);
  return properties;
}

std::vector<GpuInfo> list_devices(CudaApi& api) {
  require_driver(api);
  const int count = count_devices(api);
  std::vector<GpuInfo> out;
  for (int device = 0; device < count; ++device) {
    GpuInfo& gpu = out.emplace_back();
    gpu.device = str_cat("cuda:", device);
    DeviceProperties properties;
    if (api.device_properties(device, &properties) == kSuccess) {
      gpu.name = properties.name;
      gpu.compute_capability = str_cat(properties.major, ".", properties.minor);
      gpu.total_bytes = properties.total_bytes;
    }
    try {
      require_device(api, device);
    } catch (const Error& error) {
      gpu.unusable = error.what();
    }
  }
  return out;
}

}  // namespace headrace::cuda
