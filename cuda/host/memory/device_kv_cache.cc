#include "cuda/host/memory/device_kv_cache.h"

#include <utility>

#include "base/check.h"

namespace headrace::cuda {

namespace {

KvLayout kv_layout_of(const PagedRows& rows, int32_t block_size) {
  return {rows.num_kv_heads, block_size, rows.key_dim};
}

}  // namespace

const DeviceKvCache& device_cache(const KvCache& cache) {
  const auto* device = dynamic_cast<const DeviceKvCache*>(&cache);
  HEADRACE_CHECK(device != nullptr, "the cache is another backend's");
  return *device;
}

DeviceKvCache::DeviceKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer storage,
                             int32_t num_slots, Backend::Buffer state_storage)
    : KvCache(layout, num_blocks, num_slots),
      storage_(std::move(storage)),
      states_(layout, num_slots, std::move(state_storage)) {}

KvLayout DeviceKvCache::kv_layout() const { return kv_layout_of(rows(), block_size()); }

size_t DeviceKvCache::block_bytes(const CacheLayout& layout) {
  const PagedRows& rows = layout.groups.front().rows;
  const int64_t row_bytes =
      kv_row_bytes(rows.dtype, rows.key_dim) + (kv_has_scales(rows.dtype) ? kKvScaleBytes : 0);
  return static_cast<size_t>(2 * int64_t{layout.num_slots()} *
                             kv_layout_of(rows, layout.block_size).block_rows() * row_bytes);
}

DeviceKvCache::Parts DeviceKvCache::numbers() const {
  return {
      static_cast<std::byte*>(storage_.data),
      static_cast<size_t>(kv_layout().block_rows() * kv_row_bytes(rows().dtype, rows().key_dim))};
}

DeviceKvCache::Parts DeviceKvCache::all_scales() const {
  const Parts codes = numbers();
  const int64_t bytes = kv_has_scales(rows().dtype) ? kv_layout().block_rows() * kKvScaleBytes : 0;
  return {codes.first + num_arrays() * array_bytes(codes), static_cast<size_t>(bytes)};
}

void* DeviceKvCache::half(int32_t index) const {
  const Parts parts = numbers();
  return parts.first + static_cast<size_t>(index) * array_bytes(parts);
}

void* DeviceKvCache::scales(int32_t index) const {
  const Parts parts = all_scales();
  if (parts.bytes == 0) return nullptr;
  return parts.first + static_cast<size_t>(index) * array_bytes(parts);
}

std::byte* DeviceKvCache::first_part(int32_t block) const {
  return numbers().first + static_cast<size_t>(block) * numbers().bytes;
}

DeviceKvCache::~DeviceKvCache() {
  if (context_ == nullptr) return;
  static_cast<void>(context_->api().set_device(context_->device()));
  if (copies_ != nullptr) static_cast<void>(context_->api().synchronize(copies_));
}

void DeviceKvCache::add_host_blocks(CudaContext& context, int32_t count) {
  HEADRACE_CHECK(num_host_blocks_ == 0, count);
  host_storage_ = pin_for_swaps(context, count, block_bytes(layout()));
  context_ = &context;
  num_host_blocks_ = count;
}

void DeviceKvCache::add_host_slots(CudaContext& context, int32_t count) {
  states_.add_host_slots(context, count);
  context_ = &context;
}

void DeviceKvCache::copy_blocks(std::span<const BlockCopy> copies, Stream stream) {
  copies_ = stream;
  const Parts codes = numbers(), scales = all_scales();
  for (const BlockCopy& copy : copies) {
    if (copy.is_state) {
      states_.copy(*context_, copy, stream);
      continue;
    }
    HEADRACE_CHECK(copy.block >= 0 && copy.block < num_blocks(), "block ", copy.block);
    HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_blocks_, "host block ",
                   copy.host_block, " of ", num_host_blocks_);
    std::byte* const host = host_storage_.data() + static_cast<size_t>(copy.host_block) *
                                                       num_arrays() * (codes.bytes + scales.bytes);
    copy_parts(copy, codes, host, stream);
    if (scales.bytes > 0) copy_parts(copy, scales, host + num_arrays() * codes.bytes, stream);
  }
}

void DeviceKvCache::copy_parts(const BlockCopy& copy, const Parts& parts, std::byte* host,
                               Stream stream) {
  std::byte* const own = parts.first + static_cast<size_t>(copy.block) * parts.bytes;
  const CopyRows out{host, parts.bytes, own, array_bytes(parts), parts.bytes, num_arrays()};
  const CopyRows in{own, array_bytes(parts), host, parts.bytes, parts.bytes, num_arrays()};
  context_->check(context_->api().copy_rows(
                      copy.to_host ? out : in,
                      copy.to_host ? CopyKind::kDeviceToHost : CopyKind::kHostToDevice, stream),
                  "copying KV blocks");
}

}  // namespace headrace::cuda
