#include "backend/cpu/host_info.h"

#include <cpuid.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

namespace headrace {

namespace {

/// The number in a file that holds one; nothing for "max" or a missing file.
std::optional<size_t> read_number(const std::string& path) {
  std::ifstream in(path);
  size_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

/// A field of /proc/meminfo in bytes.
std::optional<size_t> meminfo(const std::string& field) {
  std::ifstream in("/proc/meminfo");
  std::string name, unit;
  size_t kib = 0;
  while (in >> name >> kib) {
    std::getline(in, unit);
    if (name == field + ":") return kib * 1024;
  }
  return std::nullopt;
}

struct ControlGroup {
  const char* limit;
  const char* usage;
};
constexpr ControlGroup kControlGroups[] = {
    {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
    {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
};

}  // namespace

int32_t usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

HostMemoryInfo host_memory_info() {
  const auto pages = static_cast<size_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page_bytes = static_cast<size_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  HostMemoryInfo info;
  info.total_bytes = pages * page_bytes;
  info.available_bytes = meminfo("MemAvailable").value_or(info.total_bytes);
  for (const ControlGroup& group : kControlGroups) {
    const auto limit = read_number(group.limit);
    if (!limit || *limit >= info.total_bytes) continue;
    const size_t used = read_number(group.usage).value_or(0);
    info.total_bytes = *limit;
    info.available_bytes = std::min(info.available_bytes, *limit - std::min(*limit, used));
  }
  return info;
}

std::string cpu_brand() {
  unsigned words[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "x86-64";
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* w = words + 4 * leaf;
    __get_cpuid(0x80000002u + leaf, &w[0], &w[1], &w[2], &w[3]);
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  std::string brand = text;
  const size_t first = brand.find_first_not_of(' ');
  const size_t last = brand.find_last_not_of(' ');
  return first == std::string::npos ? "x86-64" : brand.substr(first, last - first + 1);
}

}  // namespace headrace
