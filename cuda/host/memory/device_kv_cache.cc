#include "cuda/host/memory/device_kv_cache.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

/// Of a layer in a block.
struct LayerBytes {
  int64_t row;     ///< of a token's head
  int64_t codes;   ///< of all keys
  int64_t values;  ///< from the keys to the values; 0: they are the keys
  int64_t scales;  ///< of their scales

  LayerBytes(const PagedRows& rows, int32_t block_size)
      : row(kv_row_bytes(rows.dtype, rows.key_dim)) {
    const int64_t heads = int64_t{rows.num_kv_heads} * block_size;
    codes = heads * row;
    values = rows.latent ? 0 : codes;
    scales = kv_has_scales(rows.dtype) ? heads * kKvScaleBytes : 0;
  }
  int64_t all() const { return codes + values + 2 * scales; }
};

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
      block_bytes_(block_bytes(layout)),
      states_(layout, num_slots, std::move(state_storage)) {
  // Kernels number rows and scales with 32 bits.
  const uint64_t blocks = static_cast<uint64_t>(num_blocks) + 1;
  for (const CacheGroup& group : layout.groups) {
    const LayerBytes layer(group.rows, layout.block_size);
    const auto least = static_cast<uint64_t>(layer.scales > 0 ? kKvScaleBytes : layer.row);
    HEADRACE_CHECK(blocks * (block_bytes_ / least) <= uint64_t{1} << 32, num_blocks, " blocks of ",
                   block_bytes_);
  }
}

size_t DeviceKvCache::block_bytes(const CacheLayout& layout) {
  int64_t bytes = 0, step = 1;
  for (const CacheGroup& group : layout.groups) {
    const LayerBytes layer(group.rows, layout.block_size);
    bytes = std::max(bytes, group.num_layers * layer.all());
    step = std::lcm(step, layer.row);
  }
  return static_cast<size_t>(round_up(bytes, step));
}

KvLayout DeviceKvCache::kv_layout(int32_t layer) const {
  const PagedRows& rows = layout().rows(layer);
  const auto bytes = static_cast<int64_t>(block_bytes_);
  return {rows.num_kv_heads, block_size(), rows.key_dim,
          static_cast<int32_t>(bytes / kv_row_bytes(rows.dtype, rows.key_dim)),
          static_cast<int32_t>(bytes / kKvScaleBytes)};
}

DeviceKvCache::Part DeviceKvCache::part(int32_t layer) const {
  const LayerBytes bytes(layout().rows(layer), block_size());
  std::byte* const keys = block(0) + layout().place(layer).slot * bytes.all();
  std::byte* const scales = keys + bytes.codes + bytes.values;
  const bool scaled = bytes.scales > 0;
  return {keys, keys + bytes.values, scaled ? scales : nullptr,
          scaled ? scales + bytes.scales : nullptr};
}

DeviceKvCache::~DeviceKvCache() {
  if (context_ == nullptr) return;
  static_cast<void>(context_->api().set_device(context_->device()));
  if (copies_ != nullptr) static_cast<void>(context_->api().synchronize(copies_));
}

void DeviceKvCache::add_host_blocks(CudaContext& context, int32_t count) {
  HEADRACE_CHECK(num_host_blocks_ == 0, count);
  host_storage_ = pin_for_swaps(context, count, block_bytes_);
  context_ = &context;
  num_host_blocks_ = count;
}

void DeviceKvCache::add_host_slots(CudaContext& context, int32_t count) {
  states_.add_host_slots(context, count);
  context_ = &context;
}

void DeviceKvCache::copy_blocks(std::span<const BlockCopy> copies, Stream stream) {
  copies_ = stream;
  for (const BlockCopy& copy : copies) {
    if (copy.is_state) {
      states_.copy(*context_, copy, stream);
      continue;
    }
    HEADRACE_CHECK(copy.block >= 0 && copy.block < num_blocks(), "block ", copy.block);
    HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_blocks_, "host block ",
                   copy.host_block, " of ", num_host_blocks_);
    std::byte* const host =
        host_storage_.data() + static_cast<size_t>(copy.host_block) * block_bytes_;
    std::byte* const own = block(copy.block);
    const CopyRows out{host, block_bytes_, own, block_bytes_, block_bytes_, 1};
    const CopyRows in{own, block_bytes_, host, block_bytes_, block_bytes_, 1};
    context_->check(context_->api().copy_rows(
                        copy.to_host ? out : in,
                        copy.to_host ? CopyKind::kDeviceToHost : CopyKind::kHostToDevice, stream),
                    "copying KV blocks");
  }
}

}  // namespace headrace::cuda
