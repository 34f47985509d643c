#include "cuda/host/memory/device_memory.h"

#include <limits>

#include "base/check.h"

namespace headrace::cuda {

namespace {

constexpr size_t kRegionBytes = size_t{64} << 20;
constexpr size_t kMallocAlignment = 256;  // that cudaMalloc promises

std::string megabytes(size_t bytes) { return str_cat(bytes >> 20, " MiB"); }

}  // namespace

Result<void*> DeviceAllocator::alloc(size_t bytes, size_t alignment) {
  HEADRACE_CHECK(alignment <= kMallocAlignment, alignment);
  context_.enter();
  context_.finish_shared_work();
  void* data = nullptr;
  const Status status = context_.api().malloc_device(&data, bytes);
  if (status == kErrorMemoryAllocation) {
    return Failure{ErrorCode::kOutOfMemory, str_cat("no ", megabytes(bytes), " are free")};
  }
  context_.check(status, "taking memory");
  return data;
}

void DeviceAllocator::free(void* data, size_t) noexcept {
  static_cast<void>(context_.api().set_device(context_.device()));
  context_.finish_others_work();
  static_cast<void>(context_.api().free_device(data));
}

RawMemoryInfo DeviceAllocator::info() const {
  RawMemoryInfo out;
  if (context_.api().set_device(context_.device()) == kSuccess) {
    static_cast<void>(context_.api().memory_info(&out.free_bytes, &out.total_bytes));
  }
  return out;
}

DeviceMemory::DeviceMemory(CudaContext& context, size_t limit)
    : context_(context),
      raw_(context),
      heap_(&raw_, {.limit_bytes = limit,
                    .min_region_bytes = kRegionBytes,
                    .region_alignment = kMallocAlignment}) {}

Backend::Buffer DeviceMemory::allocate(size_t bytes) {
  // Far beyond any GPU, and far from what rounding up could overflow.
  Result<void*> piece = bytes > std::numeric_limits<size_t>::max() / 4
                            ? Failure{ErrorCode::kOutOfMemory, "no GPU has as much"}
                            : heap_.allocate(bytes);
  if (!piece.ok()) {
    const RawMemoryInfo gpu = raw_.info();
    throw_error(piece.failure().code, "GPU ", context_.device(), " can't hold ", megabytes(bytes),
                " more: this model has ", megabytes(bytes_in_use()), ", and ",
                megabytes(gpu.free_bytes), " of ", megabytes(gpu.total_bytes),
                " are free; choose a smaller model, max_model_len, max_num_seqs or "
                "max_num_batched_tokens, or free memory.");
  }
  auto release = [this](void* data) { heap_.free(data); };
  return {piece.value(), bytes, std::shared_ptr<void>(piece.value(), std::move(release))};
}

}  // namespace headrace::cuda
