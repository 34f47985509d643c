#include "memory/raw_allocator.h"

#include <algorithm>

namespace headrace {

size_t memory_budget(const RawMemoryInfo& info, const MemoryShare& share) noexcept {
  const double ratio = share.ratio > 0 ? std::min(share.ratio, 1.0) : 0.0;
  const double part = static_cast<double>(info.total_bytes) * ratio;
  // A total near 2^64 rounds up to 2^64 as a double, which no size_t holds.
  const size_t taken = ratio == 1.0 ? info.total_bytes : static_cast<size_t>(part);
  const size_t of_total = taken - std::min(taken, share.leftover);
  const size_t of_free = info.free_bytes - std::min(info.free_bytes, share.headroom);
  return std::min(of_total, of_free);
}

}  // namespace headrace
