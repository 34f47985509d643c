#include "cuda/host/device_kv_cache.h"

#include <utility>

namespace headrace::cuda {

DeviceKvCache::DeviceKvCache(const KvCacheSpec& spec, int32_t num_blocks, Backend::Buffer storage)
    : KvCache(spec, num_blocks), storage_(std::move(storage)) {}

KvLayout DeviceKvCache::layout() const {
  return {spec().num_kv_heads, spec().block_size, spec().head_dim};
}

size_t DeviceKvCache::block_bytes(const KvCacheSpec& spec) {
  const KvLayout layout{spec.num_kv_heads, spec.block_size, spec.head_dim};
  return static_cast<size_t>(2 * int64_t{spec.num_layers} * layout.block_elements()) *
         dtype_size(spec.dtype);
}

void* DeviceKvCache::half(int32_t index) const {
  const int64_t elements = layout().block_elements() * (int64_t{num_blocks()} + 1);
  return static_cast<std::byte*>(storage_.data) +
         static_cast<size_t>(index * elements) * dtype_size(spec().dtype);
}

}  // namespace headrace::cuda
