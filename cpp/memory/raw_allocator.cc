#include "memory/raw_allocator.h"

#include <algorithm>

namespace headrace {

size_t memory_budget(const RawMemoryInfo& info, const MemoryShare& share) noexcept {
  const double ratio = share.ratio > 0 ? std::min(share.ratio, 1.0) : 0.0;
  const size_t shared = info.total_bytes - std::min(info.total_bytes, share.leftover);
  const double part = static_cast<double>(shared) * ratio;
  // A total near 2^64 rounds up to 2^64 as a double, which no size_t holds.
  const size_t of_total = ratio == 1.0 ? shared : static_cast<size_t>(part);
  const size_t of_free = info.free_bytes - std::min(info.free_bytes, share.headroom);
  return std::min(of_total, of_free);
}

}  // namespace headrace
