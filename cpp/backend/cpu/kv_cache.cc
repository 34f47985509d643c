#include "backend/cpu/kv_cache.h"

#include <utility>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/op_checks_attention.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

/// Elements of the keys, or of the values, of one block of one layer.
size_t half_block(const KvCacheSpec& spec) {
  return static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.block_size) *
         static_cast<size_t>(spec.head_dim);
}

}  // namespace

CpuKvCache::CpuKvCache(const KvCacheSpec& spec, int32_t num_blocks, Backend::Buffer storage)
    : KvCache(spec, num_blocks), storage_(std::move(storage)) {}

size_t CpuKvCache::block_bytes(const KvCacheSpec& spec) {
  return static_cast<size_t>(spec.num_layers) * 2 * half_block(spec) * dtype_size(spec.dtype);
}

KvLayerView CpuKvCache::layer(int32_t layer) const {
  const size_t half = half_block(spec());
  const size_t layer_bytes =
      static_cast<size_t>(num_blocks()) * 2 * half * dtype_size(spec().dtype);
  KvLayerView view{};
  view.data = static_cast<std::byte*>(storage_.data) + static_cast<size_t>(layer) * layer_bytes;
  view.block_stride = static_cast<int64_t>(2 * half);
  view.head_stride = static_cast<int64_t>(spec().block_size) * spec().head_dim;
  view.value_offset = static_cast<int64_t>(half);
  view.block_size = spec().block_size;
  view.head_dim = spec().head_dim;
  return view;
}

const KvFormat& CpuKvCache::format(const AttentionKernels& kernels) const {
  switch (spec().dtype) {
    case DType::kBF16:
      return kernels.bf16;
    case DType::kF16:
      return kernels.f16;
    default:
      return kernels.f32;
  }
}

void CpuKvCache::read(int32_t layer_index, int32_t block, int32_t kv_head, int32_t slot, float* key,
                      float* value) const {
  const KvLayerView view = layer(layer_index);
  const DType dtype = spec().dtype;
  const auto element = [&](int64_t index) {
    if (dtype == DType::kF32) return static_cast<const float*>(view.data)[index];
    const uint16_t bits = static_cast<const uint16_t*>(view.data)[index];
    return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  const int64_t head = block * view.block_stride + kv_head * view.head_stride;
  const int64_t group = head + static_cast<int64_t>(slot / kKvLanes) * kKvLanes * view.head_dim;
  const int lane = slot % kKvLanes;
  for (int i = 0; i < view.head_dim; ++i) {
    const int place =
        dtype == DType::kBF16 ? (i / 2 * kKvLanes + lane) * 2 + i % 2 : i * kKvLanes + lane;
    key[i] = element(group + place);
    value[i] = element(head + view.value_offset + static_cast<int64_t>(slot) * view.head_dim + i);
  }
}

size_t CpuBackend::kv_block_bytes(const KvCacheSpec& spec) const {
  check_kv_spec(spec, 0);
  return CpuKvCache::block_bytes(spec);
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvCacheSpec& spec, int32_t num_blocks) {
  check_kv_spec(spec, num_blocks);
  const auto bytes = checked_mul(static_cast<uint64_t>(num_blocks), CpuKvCache::block_bytes(spec));
  HEADRACE_CHECK(bytes.has_value(), num_blocks, " blocks");
  return std::make_unique<CpuKvCache>(spec, num_blocks, allocate(*bytes));
}

}  // namespace headrace
