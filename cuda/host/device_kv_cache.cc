#include "cuda/host/device_kv_cache.h"

#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

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

size_t DeviceKvCache::part_bytes() const {
  return static_cast<size_t>(layout().block_elements()) * dtype_size(spec().dtype);
}

void* DeviceKvCache::half(int32_t index) const {
  return static_cast<std::byte*>(storage_.data) + static_cast<size_t>(index) * array_bytes();
}

std::byte* DeviceKvCache::first_part(int32_t block) const {
  return static_cast<std::byte*>(storage_.data) + static_cast<size_t>(block) * part_bytes();
}

DeviceKvCache::~DeviceKvCache() {
  if (context_ == nullptr) return;
  static_cast<void>(context_->api().set_device(context_->device()));
  if (copies_ != nullptr) static_cast<void>(context_->api().synchronize(copies_));
}

void DeviceKvCache::add_host_blocks(CudaContext& context, int32_t count) {
  const auto bytes = checked_mul(static_cast<uint64_t>(count), block_bytes(spec()));
  HEADRACE_CHECK(count > 0 && context_ == nullptr && bytes.has_value(), count);
  try {
    host_storage_ = PinnedBuffer(context, *bytes);
  } catch (const Error& error) {
    if (context.lost()) throw;
    throw_error(ErrorCode::kOutOfMemory, "the system refused ", *bytes >> 20,
                " MiB of page-locked memory for swap_space (", error.what(),
                "): lower swap_space, or raise the limit of locked memory.");
  }
  context_ = &context;
  num_host_blocks_ = count;
}

void DeviceKvCache::copy_blocks(std::span<const BlockCopy> copies, Stream stream) {
  copies_ = stream;
  const auto arrays = static_cast<size_t>(2 * spec().num_layers);
  for (const BlockCopy& copy : copies) {
    HEADRACE_CHECK(copy.block >= 0 && copy.block < num_blocks(), "block ", copy.block);
    HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_blocks_, "host block ",
                   copy.host_block, " of ", num_host_blocks_);
    std::byte* const own = first_part(copy.block);
    std::byte* const host =
        host_storage_.data() + static_cast<size_t>(copy.host_block) * arrays * part_bytes();
    const CopyRows out{host, part_bytes(), own, array_bytes(), part_bytes(), arrays};
    const CopyRows in{own, array_bytes(), host, part_bytes(), part_bytes(), arrays};
    context_->check(context_->api().copy_rows(
                        copy.to_host ? out : in,
                        copy.to_host ? CopyKind::kDeviceToHost : CopyKind::kHostToDevice, stream),
                    "copying KV blocks");
  }
}

}  // namespace headrace::cuda
