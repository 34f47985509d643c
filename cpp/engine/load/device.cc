#include "engine/load/device.h"

#include <charconv>
#include <string_view>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_plugin.h"
#include "base/check.h"
#include "base/env.h"

namespace headrace::internal {

namespace {

std::shared_ptr<Backend> open_cpu(const ModelOptions& options, const BackendNeeds& needs) {
  std::shared_ptr<Backend> backend = make_cpu_backend({.num_threads = options.num_threads,
                                                       .numa = options.device == "cpu_numa",
                                                       .isa = options.cpu_isa});
  backend->require(needs);
  return backend;
}

std::shared_ptr<Backend> open_cuda(int32_t number, const BackendNeeds& needs) {
  const CudaPlugin& plugin = load_cuda_plugin(cuda_plugin_path());
  std::shared_ptr<Backend> backend =
      plugin.make_backend({.device = number,
                           .storage = needs.storage,
                           .record_steps = env_cuda_graphs(),
                           .plain_kernels = env_cuda_plain_kernels()});
  backend->require(needs);
  return backend;
}

/// Null if the CPU must do.
std::shared_ptr<Backend> try_cuda(const BackendNeeds& needs, Logger& logger) {
  try {
    return open_cuda(0, needs);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    log_cpu_fallback(error, logger);
    return nullptr;
  }
}

}  // namespace

std::optional<DeviceName> parse_device(const std::string& name) {
  using Kind = DeviceName::Kind;
  if (name == "auto") return DeviceName{Kind::kAuto};
  if (name == "cpu") return DeviceName{Kind::kCpu};
  if (name == "cpu_numa") return DeviceName{Kind::kCpuNuma};
  if (name == "cuda") return DeviceName{Kind::kCuda};
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  DeviceName out{Kind::kCuda};
  const char* const first = name.data() + kPrefix.size();
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, out.number);
  if (error != std::errc() || end != last || out.number < 0) return std::nullopt;
  return out;
}

void log_cpu_fallback(const Error& why, Logger& logger, const std::string& root) {
  if (has_nvidia_gpu(root)) {
    logger.log(LogLevel::kWarning,
               "device auto is the CPU, though this machine has an NVIDIA GPU: ", why.what(),
               " (device cpu leaves this warning out)");
  } else {
    logger.log(LogLevel::kDebug, "device auto is the CPU: ", why.what());
  }
}

std::shared_ptr<Backend> open_device(const ModelOptions& options, bool packed,
                                     const BackendNeeds& needs, Logger& logger) {
  using Kind = DeviceName::Kind;
  const auto device = parse_device(options.device);
  HEADRACE_CHECK(device.has_value(), options.device);
  if (device->kind == Kind::kCuda) return open_cuda(device->number, needs);
  if (device->kind == Kind::kAuto && options.cpu_isa.empty() && !packed) {
    if (auto cuda = try_cuda(needs, logger)) return cuda;
  }
  return open_cpu(options, needs);
}

}  // namespace headrace::internal
