#include "base/env.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace headrace {

namespace {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

/// Whether the variable is its second choice; unset it is the first.
bool is_second(const char* name, std::string_view first, std::string_view second) {
  const auto text = get(name);
  if (!text || *text == first) return false;
  if (*text == second) return true;
  throw_error(ErrorCode::kInvalidArgument, name, " is '", *text, "': set it to ", first, " or ",
              second, ", or unset it.");
}

}  // namespace

std::optional<int32_t> env_num_threads() {
  const auto text = get("HEADRACE_NUM_THREADS");
  if (!text) return std::nullopt;
  int32_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < 1 || value > 1024) {
    throw_error(ErrorCode::kInvalidArgument, "HEADRACE_NUM_THREADS is '", *text,
                "': set it to a whole number from 1 to 1024, or unset it.");
  }
  return value;
}

std::optional<std::string> env_cpu_isa() { return get("HEADRACE_CPU_ISA"); }

std::optional<std::string> env_numa_nodes() { return get("HEADRACE_NUMA_NODES"); }

bool env_cuda_plain_kernels() { return is_second("HEADRACE_CUDA_KERNELS", "best", "plain"); }

bool env_cuda_graphs() { return !is_second("HEADRACE_CUDA_GRAPHS", "on", "off"); }

bool env_cuda_peers() { return !is_second("HEADRACE_CUDA_PEERS", "on", "off"); }

std::optional<std::string> env_nccl() { return get("HEADRACE_NCCL"); }

std::optional<std::string> env_cache_folder() {
  const auto is_absolute = [](const auto& path) { return path && path->front() == '/'; };
  if (auto folder = get("HEADRACE_CACHE")) {
    if (is_absolute(folder)) return folder;
    throw_error(ErrorCode::kInvalidArgument, "HEADRACE_CACHE is '", *folder,
                "', no absolute path: set it to the path of a folder, or unset it.");
  }
  if (auto base = get("XDG_CACHE_HOME"); is_absolute(base)) return *base + "/headrace";
  if (auto home = get("HOME"); is_absolute(home)) return *home + "/.cache/headrace";
  return std::nullopt;
}

std::optional<std::string> env_log_level() { return get("HEADRACE_LOG_LEVEL"); }

}  // namespace headrace
