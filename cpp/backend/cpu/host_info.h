#pragma once

// What this machine has: cores, memory, the CPU's name.

#include <cstddef>
#include <cstdint>
#include <string>

namespace headrace {

/// Cores this process may run on (its affinity mask), at least 1.
int32_t usable_cores() noexcept;

struct HostMemoryInfo {
  size_t total_bytes = 0;      ///< of the machine or of this process's control group, if less
  size_t available_bytes = 0;  ///< can be had without swapping
};
HostMemoryInfo host_memory_info();

/// E.g. "AMD EPYC 9654 96-Core Processor".
std::string cpu_brand();

}  // namespace headrace
