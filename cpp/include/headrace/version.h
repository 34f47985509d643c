#pragma once

#include "headrace/abi.h"

namespace headrace::inline v0 {

/// "MAJOR.MINOR.PATCH".
HEADRACE_API const char* version() noexcept;

}  // namespace headrace::inline v0
