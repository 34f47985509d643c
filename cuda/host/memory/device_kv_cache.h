#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/backend.h"
#include "cuda/host/memory/device_states.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/kernels/kv_layout.h"

namespace headrace::cuda {

/// A block has a part for each layer of its group: the layer's keys, its values, then the scales of
/// both, if there are, as kv_layout.h lays them out. Latent rows are keys, and values, too. One
/// block more than the model has takes what padding rows write, of every group.
class DeviceKvCache final : public KvCache {
 public:
  /// `storage`: block_bytes(layout) for each block and the spare one, contents undefined: kernels
  /// read no position that its sequence hasn't written. `state_storage`: as DeviceStates has it.
  DeviceKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer storage,
                int32_t num_slots, Backend::Buffer state_storage);
  /// Waits for copies to and from the host.
  ~DeviceKvCache() override;

  /// Of one block: a whole number of rows of every group. REQUIRES: the layout passes
  /// check_cache_layout().
  static size_t block_bytes(const CacheLayout& layout);

  KvLayout kv_layout(int32_t layer) const;
  /// Block 0's.
  void* keys(int32_t layer) const { return part(layer).keys; }
  void* values(int32_t layer) const { return part(layer).values; }
  /// Of the layer's keys and of its values; null: the dtype has none.
  void* key_scales(int32_t layer) const { return part(layer).key_scales; }
  void* value_scales(int32_t layer) const { return part(layer).value_scales; }
  /// A place in the spare block.
  int64_t spare_slot() const { return int64_t{num_blocks()} * block_size(); }
  std::byte* block(int32_t index) const {
    return static_cast<std::byte*>(storage_.data) + static_cast<size_t>(index) * block_bytes_;
  }

  const DeviceStates& states() const { return states_; }

  /// Page-locked memory for `count` blocks. Throws Error(kOutOfMemory). REQUIRES: there is none.
  void add_host_blocks(CudaContext& context, int32_t count);
  void add_host_slots(CudaContext& context, int32_t count);
  /// Puts the copies on `stream`, which outlives this. Throws Error(kDevice).
  void copy_blocks(std::span<const BlockCopy> copies, Stream stream);

 private:
  struct Part {
    void *keys, *values, *key_scales, *value_scales;
  };
  Part part(int32_t layer) const;

  Backend::Buffer storage_;
  size_t block_bytes_;
  DeviceStates states_;
  CudaContext* context_ = nullptr;  ///< null: nothing is on the host
  PinnedBuffer host_storage_;       ///< [host block]
  int32_t num_host_blocks_ = 0;
  Stream copies_ = nullptr;  ///< the stream of the last ones; null: there were none
};

/// REQUIRES: a cache of this backend.
const DeviceKvCache& device_cache(const KvCache& cache);

}  // namespace headrace::cuda
