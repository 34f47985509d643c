#include "engine/devices/open_device.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda_plugin.h"
#include "base/check.h"
#include "base/env.h"
#include "engine/devices/device_names.h"

namespace headrace::internal {

namespace {

std::shared_ptr<Backend> open_cpu(const ModelOptions& options, const BackendNeeds& needs) {
  const RankPlace rank = {parse_device(options.device)->number, options.tensor_parallel_size};
  std::shared_ptr<Backend> backend = make_cpu_backend({.num_threads = options.num_threads,
                                                       .numa = options.device == "cpu_numa",
                                                       .isa = options.cpu_isa,
                                                       .rank = rank});
  backend->require(needs);
  return backend;
}

std::shared_ptr<Backend> open_cuda(int32_t number, const BackendNeeds& needs) {
  const CudaPlugin& plugin = load_cuda_plugin(cuda_plugin_path());
  std::shared_ptr<Backend> backend =
      plugin.make_backend({.device = number,
                           .storage = needs.storage,
                           .record_steps = env_cuda_graphs(),
                           .trials_folder = env_cache_folder().value_or(""),
                           .plain_kernels = env_cuda_plain_kernels(),
                           .use_peers = env_cuda_peers(),
                           .nccl = env_nccl().value_or("")});
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

void log_cpu_fallback(const Error& why, Logger& logger, const std::string& root) {
  if (has_nvidia_gpu(root)) {
    warn_cpu_fallback(why, logger);
  } else {
    logger.log(LogLevel::kDebug, "device auto is the CPU: ", why.what());
  }
}

void warn_cpu_fallback(const Error& why, Logger& logger) {
  logger.log(LogLevel::kWarning,
             "device auto is the CPU, though this machine has an NVIDIA GPU: ", why.what(),
             " (device cpu leaves this warning out)");
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
