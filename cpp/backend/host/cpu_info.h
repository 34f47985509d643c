#pragma once

// The processor this runs on.

#include <cstdint>
#include <string>

#include "backend/host/cpu_affinity.h"

namespace headrace {

/// Cores this process may run on: the affinity mask of the calling thread.
CpuMask usable_cpus() noexcept;
/// Their number, at least 1.
int32_t usable_cores() noexcept;

/// E.g. "AMD EPYC 9654 96-Core Processor".
std::string cpu_brand();

}  // namespace headrace
