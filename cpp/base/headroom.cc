#include "base/headroom.h"

#include <sys/mman.h>

namespace headrace::internal {

bool has_headroom(size_t bytes) noexcept {
  if (bytes == 0) return true;
  void* const place =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return false;
  munmap(place, bytes);
  return true;
}

}  // namespace headrace::internal
