#pragma once

#include <cstddef>

namespace headrace::internal {

/// Whether `bytes` of address space can be had now, under whatever limits the process has. For
/// calls into libraries that end the process when memory runs out. Somebody else may take it in
/// the next moment, and the machine may have less memory than address space.
bool has_headroom(size_t bytes) noexcept;

}  // namespace headrace::internal
