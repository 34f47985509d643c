#include "backend/cpu/kv/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/checks/op_checks_attention.h"
#include "backend/checks/op_checks_state.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "tensor/float8.h"

namespace headrace {
namespace {

bool is_quantized(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kU4;
}

/// Bytes of the keys, or of the values, of 16 tokens of one head.
int64_t group_bytes(const PagedRows& rows) {
  const int64_t d = rows.key_dim;
  if (rows.dtype == DType::kU4) return kKvLanes * (round_up(d, int64_t{32}) / 2);
  return kKvLanes * d * static_cast<int64_t>(dtype_size(rows.dtype));
}

/// A layer that holds so many heads, alone in its blocks and not yet anywhere.
KvLayerView layer_of(const PagedRows& rows, int32_t block_size, int64_t heads) {
  KvLayerView view{};
  view.group_stride = group_bytes(rows);
  view.value_offset = block_size / kKvLanes * view.group_stride;
  view.latent = rows.latent;
  view.head_stride = (rows.latent ? 1 : 2) * view.value_offset;
  view.scale_offset = heads * view.head_stride;
  view.value_scale_offset =
      is_quantized(rows.dtype) ? heads * block_size * int64_t{kScaleBytes} : 0;
  view.block_stride = view.scale_offset + 2 * view.value_scale_offset;
  view.block_size = block_size;
  view.head_dim = rows.key_dim;
  return view;
}

/// Bytes of a part's block. `heads`: of the part, by group.
template <class Heads>
int64_t part_bytes(const CacheLayout& layout, const Heads& heads) {
  int64_t most = 0;
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const CacheGroup& group = layout.groups[i];
    const KvLayerView layer = layer_of(group.rows, layout.block_size, heads(i));
    most = std::max(most, group.num_layers * layer.block_stride);
  }
  return most;
}

/// A token's key and value as float32, read one by one.
class TokenReader {
 public:
  TokenReader(const KvLayerView& view, DType dtype, int64_t block, int32_t kv_head, int32_t slot)
      : dtype_(dtype), latent_(view.latent), head_dim_(view.head_dim), lane_(slot % kKvLanes) {
    keys_ = view.data + block * view.block_stride + kv_head * view.head_stride +
            slot / kKvLanes * view.group_stride;
    values_ = keys_ + view.value_offset;
    key_scale_ = view.data + block * view.block_stride + view.scale_offset +
                 (int64_t{kv_head} * view.block_size + slot) * kScaleBytes;
    value_scale_ = key_scale_ + view.value_scale_offset;
  }

  float key(int32_t dim) const {
    if (dtype_ == DType::kF32 || dtype_ == DType::kF16) {
      return number(keys_, int64_t{dim} * kKvLanes + lane_);
    }
    if (dtype_ == DType::kF8E4M3) {
      return number(keys_, int64_t{dim} * kKvLanes + lane_, key_scale_);
    }
    if (dtype_ != DType::kU4) return number(keys_, pair(dim, lane_, kKvLanes), key_scale_);
    const uint8_t byte = keys_[(dim / 4 * kKvLanes + lane_) * 2 + dim % 2];
    return nibble(byte, dim / 2 % 2, key_scale_);
  }
  float value(int32_t dim) const {
    if (latent_) return key(dim);
    if (dtype_ == DType::kF32 || dtype_ == DType::kF16) {
      return number(values_, int64_t{lane_} * head_dim_ + dim);
    }
    if (dtype_ == DType::kF8E4M3) {
      return number(values_, int64_t{lane_} * head_dim_ + dim, value_scale_);
    }
    if (dtype_ != DType::kU4) return number(values_, pair(lane_, dim, head_dim_), value_scale_);
    const int32_t bytes = round_up(head_dim_, 32) / 2;
    const uint8_t byte = values_[pair(lane_, dim / 32 * 16 + dim % 16, bytes)];
    return nibble(byte, dim / 16 % 2, value_scale_);
  }

 private:
  static int64_t pair(int32_t index, int32_t lane, int32_t stride) {
    return (int64_t{index / 2} * stride + lane) * 2 + index % 2;
  }
  template <class T>
  static T read(const uint8_t* p) {
    T out;
    std::memcpy(&out, p, sizeof out);
    return out;
  }
  float number(const uint8_t* base, int64_t place, const uint8_t* scale = nullptr) const {
    switch (dtype_) {
      case DType::kI8:
        return read<float>(scale) * static_cast<float>(read<int8_t>(base + place));
      case DType::kF8E4M3:
        return read<float>(scale) * e4m3_to_f32(base[place]);
      case DType::kF32:
        return read<float>(base + place * 4);
      case DType::kBF16:
        return bf16_to_f32(read<uint16_t>(base + place * 2));
      default:
        return f16_to_f32(read<uint16_t>(base + place * 2));
    }
  }
  static float nibble(uint8_t byte, int32_t high, const uint8_t* scale) {
    const float step = bf16_to_f32(read<uint16_t>(scale));
    return bf16_to_f32(read<uint16_t>(scale + 2)) +
           step * static_cast<float>(high != 0 ? byte >> 4 : byte & 15);
  }

  DType dtype_;
  bool latent_;
  int32_t head_dim_, lane_;
  const uint8_t *keys_, *values_, *key_scale_, *value_scale_;
};

}  // namespace

CpuKvCache::CpuKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer storage,
                       const PartHeads& heads, int32_t num_slots, Backend::Buffer states)
    : ArrayKvCache(layout, num_blocks, num_slots, std::move(states)), storage_(std::move(storage)) {
  auto* data = static_cast<uint8_t*>(storage_.data);
  std::vector<int32_t> first(heads.size(), 0);
  for (size_t index = 0; index < heads.front().size(); ++index) {
    const int64_t bytes = part_bytes(layout, [&](size_t group) { return heads[group][index]; });
    Part& part = parts_.emplace_back(Part{data, static_cast<size_t>(bytes), {}});
    for (const CachePlace& place : layout.layers) {
      Layer& layer = part.layers.emplace_back();
      if (place.group < 0) continue;
      const auto group = static_cast<size_t>(place.group);
      layer.first_head = first[group];
      layer.end_head = first[group] + heads[group][index];
      layer.view = layer_of(layout.groups[group].rows, layout.block_size, heads[group][index]);
      layer.view.data = data + place.slot * layer.view.block_stride;
      layer.view.block_stride = bytes;
    }
    for (size_t group = 0; group < heads.size(); ++group) first[group] += heads[group][index];
    add_blocks(data, part.block_bytes);
    data += bytes * num_blocks;
  }
}

size_t CpuKvCache::block_bytes(const CacheLayout& layout) {
  return static_cast<size_t>(
      part_bytes(layout, [&](size_t group) { return layout.groups[group].rows.num_kv_heads; }));
}

CpuKvCache::HeadPlace CpuKvCache::find_head(int32_t layer, int32_t kv_head) const {
  const auto index = static_cast<size_t>(layer);
  size_t part = 0;
  while (kv_head >= parts_[part].layers[index].end_head) ++part;
  const Layer& found = parts_[part].layers[index];
  return {&found.view, kv_head - found.first_head};
}

std::span<uint8_t> CpuKvCache::part(int32_t index) const {
  const Part& part = parts_[static_cast<size_t>(index)];
  return {part.data, part.block_bytes * static_cast<size_t>(num_blocks())};
}

const KvFormat& CpuKvCache::format(const AttentionKernels& kernels) const {
  switch (dtype()) {
    case DType::kBF16:
      return kernels.bf16;
    case DType::kF16:
      return kernels.f16;
    case DType::kI8:
      return kernels.i8;
    case DType::kF8E4M3:
      return kernels.f8;
    case DType::kU4:
      return kernels.u4;
    default:
      return kernels.f32;
  }
}

void CpuKvCache::read(int32_t layer_index, int32_t block, int32_t kv_head, int32_t slot, float* key,
                      float* value) const {
  const HeadPlace place = find_head(layer_index, kv_head);
  const TokenReader token(*place.layer, dtype(), block, place.head, slot);
  for (int32_t i = 0; i < place.layer->head_dim; ++i) {
    key[i] = token.key(i);
    value[i] = token.value(i);
  }
}

size_t CpuBackend::kv_block_bytes(const CacheLayout& layout) const {
  check_cache_layout(layout, 0);
  return CpuKvCache::block_bytes(layout);
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                                   int32_t num_slots) {
  check_cache_layout(layout, num_blocks);
  check_num_slots(layout, num_slots);
  const auto bytes =
      checked_mul(static_cast<uint64_t>(num_blocks), CpuKvCache::block_bytes(layout));
  HEADRACE_CHECK(bytes.has_value(), num_blocks, " blocks");
  const CpuKvCache::PartHeads heads = share_heads(layout);
  Buffer states;
  if (num_slots > 0) states = allocate(host_state_bytes(layout, num_slots));
  if (num_slots > 0 && !nodes_.empty()) spread_over(states.data, states.bytes, nodes_);
  auto cache = std::make_unique<CpuKvCache>(layout, num_blocks, allocate(*bytes), heads, num_slots,
                                            std::move(states));
  if (heads.front().size() == nodes_.size()) {
    for (int32_t part = 0; part < cache->num_parts(); ++part) {
      const std::span<uint8_t> memory = cache->part(part);
      place_near(memory.data(), memory.size(), nodes_[static_cast<size_t>(part)].id);
    }
  } else if (!nodes_.empty()) {
    spread_over(cache->part(0).data(), cache->part(0).size(), nodes_);
  }
  return cache;
}

void CpuBackend::add_host_blocks(KvCache& cache, int32_t count) {
  const auto bytes =
      checked_mul(static_cast<uint64_t>(count), CpuKvCache::block_bytes(cache.layout()));
  HEADRACE_CHECK(count > 0 && bytes.has_value(), count, " blocks");
  Buffer storage = allocate(*bytes);
  if (!nodes_.empty()) spread_over(storage.data, storage.bytes, nodes_);
  dynamic_cast<ArrayKvCache&>(cache).add_host_blocks(count, std::move(storage));
}

size_t CpuBackend::state_slot_bytes(const CacheLayout& layout) const {
  check_cache_layout(layout, 0);
  return host_state_bytes(layout);
}

void CpuBackend::add_host_slots(KvCache& cache, int32_t count) {
  check_num_slots(cache.layout(), count);
  Buffer storage = allocate(host_state_bytes(cache.layout(), count));
  if (!nodes_.empty()) spread_over(storage.data, storage.bytes, nodes_);
  dynamic_cast<ArrayKvCache&>(cache).add_host_slots(count, std::move(storage));
}

void CpuBackend::copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) {
  const auto& arrays = dynamic_cast<const ArrayKvCache&>(cache);
  arrays.check_copies(copies);
  pool_.parallel_for(arrays.num_copy_parts(), 1, [&](int64_t first, int64_t end, int32_t) {
    arrays.copy_parts(copies, first, end);
  });
}

std::vector<std::vector<int32_t>> CpuBackend::share_heads(const CacheLayout& layout) const {
  std::vector<std::vector<int32_t>> shared, whole;
  for (const CacheGroup& group : layout.groups) {
    const int32_t kv_heads = group.rows.num_kv_heads;
    whole.push_back({kv_heads});
    std::vector<int32_t>& parts = shared.emplace_back();
    for (int32_t node = 0; node < pool_.num_groups(); ++node) {
      const ThreadPool::Range part = pool_.part_of(node, kv_heads);
      const ThreadPool::Range threads = pool_.part_of(node, pool_.num_threads());
      const int64_t heads = part.end - part.begin;
      if (heads * pool_.num_threads() == (threads.end - threads.begin) * kv_heads) {
        parts.push_back(static_cast<int32_t>(heads));
      }
    }
  }
  const auto is_shared = [this](const std::vector<int32_t>& parts) {
    return std::cmp_equal(parts.size(), pool_.num_groups());
  };
  return std::ranges::all_of(shared, is_shared) ? shared : whole;
}

}  // namespace headrace
