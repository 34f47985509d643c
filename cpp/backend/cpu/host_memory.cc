#include "backend/cpu/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kHugePage = size_t{2} << 20;

void* map_pages(size_t bytes) {
  // Over-map so that the piece starts on a huge page, then give the ends back.
  const size_t mapped = bytes + kHugePage;
  void* base = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* first = static_cast<char*>(base);
  auto* start = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(base), kHugePage));
  const auto head = static_cast<size_t>(start - first);
  if (head > 0) ::munmap(first, head);
  if (mapped - head > bytes) ::munmap(start + bytes, mapped - head - bytes);
  ::madvise(start, bytes, MADV_HUGEPAGE);
  return start;
}

}  // namespace

HostMemory::HostMemory(size_t limit) : meter_(std::make_shared<Meter>()), limit_(limit) {}

size_t HostMemory::bytes_in_use() const noexcept {
  return meter_->bytes_in_use.load(std::memory_order_relaxed);
}

void HostMemory::reserve(size_t bytes) {
  const size_t limit = limit_ == 0 ? std::numeric_limits<size_t>::max() : limit_;
  size_t held = meter_->bytes_in_use.load(std::memory_order_relaxed);
  do {
    if (held > limit || bytes > limit - held) {
      throw_error(ErrorCode::kOutOfMemory, "the CPU backend cannot hold ", bytes,
                  " more bytes: its memory limit is ", limit, " bytes and ", held,
                  " are in use; raise the limit or choose a smaller model or cache");
    }
  } while (
      !meter_->bytes_in_use.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
}

Backend::Buffer HostMemory::allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    throw_error(ErrorCode::kOutOfMemory, "the CPU backend cannot hold ", bytes, " bytes");
  }
  const bool large = bytes >= kHugePage;
  const size_t size = round_up(bytes == 0 ? size_t{1} : bytes, large ? size_t{4096} : kAlignment);
  reserve(size);
  void* data = large ? map_pages(size) : std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    meter_->bytes_in_use.fetch_sub(size, std::memory_order_relaxed);
    throw_error(ErrorCode::kOutOfMemory, "the system refused ", size, " bytes of memory; ",
                bytes_in_use(), " are in use by the CPU backend");
  }
  if (!large) std::memset(data, 0, size);
  auto release = [meter = meter_, size, large](void* p) {
    if (large) {
      ::munmap(p, size);
    } else {
      std::free(p);
    }
    meter->bytes_in_use.fetch_sub(size, std::memory_order_relaxed);
  };
  return {data, bytes, std::shared_ptr<void>(data, std::move(release))};
}

}  // namespace headrace
