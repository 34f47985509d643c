#pragma once

#include <string>

#include "backend/host/cpu_info.h"
#include "base/check.h"

namespace headrace::parity {

/// CpuBackendOptions::numa_nodes of `count` ranks, one of the CPUs that this process may use to
/// each; "" if they are fewer.
inline std::string ranks_of(int32_t count) {
  const CpuMask usable = usable_cpus();
  std::string out;
  for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus && count > 0; ++cpu) {
    if (!usable.contains(cpu)) continue;
    out = out.empty() ? str_cat(cpu) : str_cat(out, ";", cpu);
    --count;
  }
  return count == 0 ? out : "";
}

}  // namespace headrace::parity
