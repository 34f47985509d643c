#pragma once

// What the CPU backend finds on this machine.

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/abi.h"

namespace headrace::inline v0 {

/// A set of kernels (ModelOptions::cpu_isa).
struct CpuIsaInfo {
  std::string name;
  std::vector<std::string> missing;  ///< what this CPU lacks for it; empty: it can be used
};

struct CpuInfo {
  std::string brand;
  std::string isa;               ///< in use unless a model says otherwise
  std::vector<CpuIsaInfo> isas;  ///< best first
  int32_t cores = 0;             ///< that this process may use
  int32_t num_threads = 0;       ///< of a model that says nothing
  /// CPUs of each node that "cpu_numa" shares a model out to, as in "0-3,8".
  std::vector<std::string> numa_nodes;
  /// Transparent huge pages: "always", "madvise" (both will do), "never" (matrices are read more
  /// slowly) or "unknown".
  std::string huge_pages;
};

/// Throws Error for HEADRACE_* variables that cannot be followed.
HEADRACE_API CpuInfo describe_cpu();

}  // namespace headrace::inline v0
