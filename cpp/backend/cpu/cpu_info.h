#pragma once

// The processor this runs on.

#include <cstdint>
#include <string>

namespace headrace {

/// Cores this process may run on (its affinity mask), at least 1.
int32_t usable_cores() noexcept;

/// E.g. "AMD EPYC 9654 96-Core Processor".
std::string cpu_brand();

}  // namespace headrace
