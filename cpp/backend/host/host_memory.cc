#include "backend/host/host_memory.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "memory/bfc_allocator.h"
#include "memory/mmap_allocator.h"

namespace headrace {

struct HostMemory::Heap {
  MmapAllocator pages;
  BfcAllocator pieces{&pages};
  std::atomic<size_t> bytes_in_use{0};
};

HostMemory::HostMemory(size_t limit) : heap_(std::make_shared<Heap>()), limit_(limit) {}

size_t HostMemory::bytes_in_use() const noexcept {
  return heap_->bytes_in_use.load(std::memory_order_relaxed);
}

size_t HostMemory::bytes_held() const { return heap_->pieces.stats().region_bytes; }

void HostMemory::reserve(size_t bytes) {
  if (limit_ == 0) {
    heap_->bytes_in_use.fetch_add(bytes, std::memory_order_relaxed);
    return;
  }
  size_t held = bytes_in_use();
  do {
    if (held > limit_ || bytes > limit_ - held) {
      throw_error(ErrorCode::kOutOfMemory, "the CPU backend cannot hold ", bytes,
                  " more bytes: its memory limit is ", limit_, " bytes and ", held,
                  " are in use; raise the limit or choose a smaller model or cache");
    }
  } while (
      !heap_->bytes_in_use.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
}

Backend::Buffer HostMemory::allocate(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    throw_error(ErrorCode::kOutOfMemory, "the CPU backend cannot hold ", bytes, " bytes");
  }
  const size_t size = round_up(bytes == 0 ? size_t{1} : bytes, BfcAllocator::kAlignment);
  reserve(size);
  const Result<void*> piece = heap_->pieces.allocate(size);
  if (!piece.ok()) {
    heap_->bytes_in_use.fetch_sub(size, std::memory_order_relaxed);
    throw_error(piece.failure().code, "the system refused ", size, " bytes of memory while ",
                bytes_in_use(), " are in use by the CPU backend: ", piece.failure().message);
  }
  auto release = [heap = heap_, size](void* data) {
    heap->pieces.free(data);
    heap->bytes_in_use.fetch_sub(size, std::memory_order_relaxed);
  };
  return {piece.value(), bytes, std::shared_ptr<void>(piece.value(), std::move(release))};
}

Backend::Buffer adopt_host_memory(const void* data, size_t bytes, std::shared_ptr<void> owner) {
  HEADRACE_CHECK(reinterpret_cast<uintptr_t>(data) % BfcAllocator::kAlignment == 0);
  return {const_cast<void*>(data), bytes, std::move(owner)};
}

}  // namespace headrace
