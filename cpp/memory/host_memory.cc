#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "memory/mmap_allocator.h"

namespace headrace {

namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

/// The number after `key` in a file of "key number ..." lines ("MemTotal: 5 kB", "cache 7").
std::optional<uint64_t> keyed_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

/// A file that holds one number; nullopt also for "max".
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* prefix;  ///< of the counters in memory.stat that include child groups
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes", "total_"};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current", ""};

constexpr uint64_t kKiB = 1024;

/// Narrows `info` by one control group.
void apply_group(const std::string& folder, const GroupFiles& files, RawMemoryInfo* info) {
  const uint64_t limit = number_in(folder + files.limit).value_or(kUnbounded);
  if (limit >= info->total_bytes) return;
  const uint64_t usage = number_in(folder + files.usage).value_or(0);
  const std::string stat = folder + "/memory.stat";
  const std::string prefix = files.prefix;
  const uint64_t cache = keyed_number(stat, prefix + "inactive_file").value_or(0) +
                         keyed_number(stat, prefix + "active_file").value_or(0);
  const uint64_t held = usage - std::min(usage, cache);
  info->total_bytes = limit;
  info->free_bytes = std::min<uint64_t>(info->free_bytes, limit - std::min(limit, held));
}

/// Narrows `info` by the group at `path` and all its ancestors. Inside a container the path may
/// name a folder of the host, which is not there: the mount's root is then the container's group.
void apply_groups(const std::string& root, const GroupFiles& files, std::string path,
                  RawMemoryInfo* info) {
  while (true) {
    apply_group(root + files.mount + path, files, info);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

RawMemoryInfo host_memory_info(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  RawMemoryInfo info;
  info.total_bytes = keyed_number(meminfo, "MemTotal:").value_or(0) * kKiB;
  info.free_bytes = keyed_number(meminfo, "MemAvailable:").value_or(0) * kKiB;

  std::ifstream groups(root + "/proc/self/cgroup");  // lines of "id:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = str_cat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") apply_groups(root, kVersion2, path, &info);
    if (controllers.find(",memory,") != std::string::npos) {
      apply_groups(root, kVersion1, path, &info);
    }
  }
  return info;
}

size_t untouched_mapped_bytes(const std::string& root) {
  const std::string status = root + "/proc/self/status";
  const auto resident = keyed_number(status, "RssAnon:");
  if (!resident) return 0;
  const uint64_t touched = (*resident + keyed_number(status, "VmSwap:").value_or(0)) * kKiB;
  const size_t mapped = MmapAllocator::mapped_bytes();
  return mapped - static_cast<size_t>(std::min<uint64_t>(mapped, touched));
}

}  // namespace headrace
