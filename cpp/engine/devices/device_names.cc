#include "engine/devices/device_names.h"

#include <charconv>
#include <set>
#include <string_view>

#include "backend/cuda_plugin.h"
#include "base/check.h"

namespace headrace::internal {

std::optional<DeviceName> parse_device(const std::string& name) {
  using Kind = DeviceName::Kind;
  if (name == "auto") return DeviceName{Kind::kAuto};
  if (name == "cpu") return DeviceName{Kind::kCpu};
  if (name == "cpu_numa") return DeviceName{Kind::kCpuNuma};
  if (name == "cuda") return DeviceName{Kind::kCuda};
  const std::string_view prefix = name.starts_with("cpu:") ? "cpu:" : "cuda:";
  if (!name.starts_with(prefix)) return std::nullopt;
  DeviceName out{prefix == "cpu:" ? Kind::kCpu : Kind::kCuda};
  const char* const first = name.data() + prefix.size();
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, out.number);
  if (error != std::errc() || end != last || out.number < 0) return std::nullopt;
  if (name != str_cat(prefix, out.number)) return std::nullopt;  // "cuda:00" is no other GPU
  return out;
}

int32_t num_ranks(const ModelOptions& options) {
  return options.devices.empty()
             ? options.tensor_parallel_size
             : static_cast<int32_t>(options.devices.size()) / options.data_parallel_size;
}

RankPlace rank_place(const ModelOptions& options, int32_t rank) {
  return {rank, num_ranks(options), options.enable_expert_parallel};
}

namespace {

constexpr int32_t kMaxDevices = 64;

void check_list(const std::vector<std::string>& devices) {
  std::set<std::string> seen;
  const bool cpu = devices.front().starts_with("cpu:");
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string& name = devices[i];
    const bool known = cpu ? name == str_cat("cpu:", i)
                           : name.starts_with("cuda:") && parse_device(name).has_value();
    if (!known) {
      throw_error(ErrorCode::kInvalidArgument, "devices has '", name, "' at place ", i,
                  ": name GPUs as cuda:0, cuda:2, ..., or groups of threads as cpu:0, cpu:1, ... "
                  "in this order.");
    }
    if (!seen.insert(name).second) {
      throw_error(ErrorCode::kInvalidArgument, "devices has ", name,
                  " twice: each of them computes a part of its own.");
    }
  }
}

/// That there may be so many.
void check_counts(const ModelOptions& options) {
  const auto check = [](const char* option, int64_t value) {
    if (value >= 1 && value <= kMaxDevices) return;
    throw_error(ErrorCode::kInvalidArgument, option, " must be in [1, ", kMaxDevices, "], got ",
                value, ".");
  };
  const int32_t size = options.tensor_parallel_size, replicas = options.data_parallel_size;
  check("tensor_parallel_size", size);
  check("data_parallel_size", replicas);
  check("data_parallel_size x tensor_parallel_size, the number of devices,",
        int64_t{size} * replicas);
  if (options.devices.empty()) return;
  const auto named = static_cast<int64_t>(options.devices.size());
  check("the number of devices", named);
  if (named % replicas != 0) {
    throw_error(ErrorCode::kInvalidArgument, "devices names ", named, ", and data_parallel_size ",
                replicas, " doesn't divide them: each replica has as many.");
  }
  if (size != 1 && size != named / replicas) {
    throw_error(ErrorCode::kInvalidArgument, "tensor_parallel_size is ", size,
                ", but devices names ", named / replicas, replicas > 1 ? " for each replica" : "",
                ": leave one of the two out.");
  }
}

}  // namespace

void check_devices(const ModelOptions& options) {
  const auto device = parse_device(options.device);
  if (!device || options.device.starts_with("cpu:")) {
    throw_error(ErrorCode::kUnsupported, "device '", options.device,
                "' is not known: use auto, cpu, cpu_numa, cuda or cuda:N.");
  }
  check_counts(options);
  if (options.enable_expert_parallel && num_ranks(options) == 1) {
    throw_error(ErrorCode::kInvalidArgument,
                "enable_expert_parallel shares experts out to several devices, but there is one: ",
                "set tensor_parallel_size or devices, or leave it out.");
  }
  if (!options.devices.empty()) {
    if (options.device != "auto") {
      throw_error(ErrorCode::kInvalidArgument, "device is ", options.device,
                  " and devices names others: leave one of the two out.");
    }
    check_list(options.devices);
  } else if (options.device.starts_with("cuda:")) {
    const bool shared = options.tensor_parallel_size > 1;
    if (!shared && options.data_parallel_size == 1) return;
    throw_error(ErrorCode::kInvalidArgument, "device is ", options.device, ", one GPU, but ",
                shared ? "tensor_parallel_size is " : "data_parallel_size is ",
                shared ? options.tensor_parallel_size : options.data_parallel_size,
                ": set device to cuda, or name the GPUs in devices.");
  }
}

ModelOptions rank_options(const ModelOptions& options, const ReplicaPlace& replica, int32_t rank,
                          const Backend* first) {
  using Kind = DeviceName::Kind;
  ModelOptions out = options;
  const int32_t place = replica.index * num_ranks(options) + rank;
  out.tensor_parallel_size = options.data_parallel_size * num_ranks(options);
  out.data_parallel_size = 1;
  out.devices.clear();
  if (!options.devices.empty()) {
    out.device = options.devices[static_cast<size_t>(place)];
    return out;
  }
  if (out.tensor_parallel_size == 1) return out;
  bool cuda = parse_device(options.device)->kind == Kind::kCuda;
  if (options.device == "auto") {
    if (place == 0) return out;
    cuda = first != nullptr ? !first->device_info().host_memory
                            : replica.first_device.starts_with("cuda");
  }
  out.device = str_cat(cuda ? "cuda:" : "cpu:", place);
  return out;
}

bool may_open_gpu(const ModelOptions& options) {
  const std::string& device = options.devices.empty() ? options.device : options.devices.front();
  return device == "auto" ? has_nvidia_gpu() : device.starts_with("cuda");
}

}  // namespace headrace::internal
