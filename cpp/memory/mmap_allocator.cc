#include "memory/mmap_allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/checked_math.h"

namespace headrace {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Memory is the process's: models of several engines are planned from the same.
std::atomic<size_t> process_bytes{0};

size_t page_size() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

Failure no_memory(size_t bytes) {
  return {ErrorCode::kOutOfMemory,
          str_cat("the system refuses ", bytes,
                  " bytes of memory. Use a smaller model, context or batch, or free memory.")};
}

}  // namespace

Result<void*> MmapAllocator::alloc(size_t bytes, size_t alignment) {
  const size_t page = page_size();
  if (bytes >= kHugePage) alignment = std::max(alignment, kHugePage);
  alignment = std::max(alignment, page);
  const auto padded = checked_add(bytes, page - 1);
  if (!padded) return no_memory(bytes);
  const size_t size = *padded / page * page;
  // Mappings start on any page: map enough to find the alignment inside, then trim both ends.
  const auto mapped = checked_add(size, alignment - page);
  if (!mapped) return no_memory(bytes);
  void* const base =
      ::mmap(nullptr, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return no_memory(bytes);
  char* const first = static_cast<char*>(base);
  const size_t head = (alignment - reinterpret_cast<uintptr_t>(base) % alignment) % alignment;
  const size_t tail = *mapped - head - size;
  if (head > 0) ::munmap(first, head);
  if (tail > 0) ::munmap(first + head + size, tail);
  void* const data = first + head;
  if (size >= kHugePage) ::madvise(data, size, MADV_HUGEPAGE);  // a hint: failure costs only speed
  process_bytes += size;
  return data;
}

void MmapAllocator::free(void* data, size_t bytes) noexcept {
  const size_t page = page_size();
  const size_t size = (bytes + page - 1) / page * page;
  ::munmap(data, size);
  process_bytes -= size;
}

size_t MmapAllocator::mapped_bytes() noexcept { return process_bytes; }

RawMemoryInfo MmapAllocator::info() const { return host_memory_info(); }

}  // namespace headrace
