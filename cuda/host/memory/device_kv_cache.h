#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/backend.h"
#include "cuda/host/memory/device_states.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/kernels/kv_layout.h"

namespace headrace::cuda {

/// Per slot of a layer keys, then values, as kv_layout.h lays them out; scales, if there are,
/// likewise behind all codes. One block more than the model has takes what padding rows write, of
/// every group.
class DeviceKvCache final : public KvCache {
 public:
  /// `storage`: block_bytes(layout) for each block and the spare one, contents undefined: kernels
  /// read no position that its sequence hasn't written. `state_storage`: as DeviceStates has it.
  DeviceKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer storage,
                int32_t num_slots, Backend::Buffer state_storage);
  /// Waits for copies to and from the host.
  ~DeviceKvCache() override;

  /// Of one block.
  static size_t block_bytes(const CacheLayout& layout);

  KvLayout kv_layout() const;
  void* keys(int32_t layer) const { return half(2 * slot(layer)); }
  void* values(int32_t layer) const { return half(2 * slot(layer) + 1); }
  /// Of the layer's keys and of its values; null: the dtype has none.
  void* key_scales(int32_t layer) const { return scales(2 * slot(layer)); }
  void* value_scales(int32_t layer) const { return scales(2 * slot(layer) + 1); }
  /// A place in the spare block.
  int64_t spare_slot() const { return int64_t{num_blocks()} * block_size(); }

  const DeviceStates& states() const { return states_; }

  /// Page-locked memory for `count` blocks. Throws Error(kOutOfMemory). REQUIRES: there is none.
  void add_host_blocks(CudaContext& context, int32_t count);
  void add_host_slots(CudaContext& context, int32_t count);
  /// Puts the copies on `stream`, which outlives this. Throws Error(kDevice).
  void copy_blocks(std::span<const BlockCopy> copies, Stream stream);
  /// A block's part of the first slot's keys, for tests.
  std::byte* first_part(int32_t block) const;

 private:
  /// Parts of a block, one in each of the 2 * num_slots arrays of a kind.
  struct Parts {
    std::byte* first;  ///< block 0's, of the first slot's keys
    size_t bytes;      ///< of one part
  };
  int32_t slot(int32_t layer) const { return layout().place(layer).slot; }
  size_t num_arrays() const { return 2 * static_cast<size_t>(layout().num_slots()); }
  size_t array_bytes(const Parts& parts) const {
    return parts.bytes * (static_cast<size_t>(num_blocks()) + 1);
  }
  Parts numbers() const;
  Parts all_scales() const;  ///< of 0 bytes: there are none
  void* half(int32_t index) const;
  void* scales(int32_t index) const;
  void copy_parts(const BlockCopy& copy, const Parts& parts, std::byte* host, Stream stream);

  Backend::Buffer storage_;
  DeviceStates states_;
  CudaContext* context_ = nullptr;  ///< null: nothing is on the host
  PinnedBuffer host_storage_;       ///< [host block][array], then the block's scales alike
  int32_t num_host_blocks_ = 0;
  Stream copies_ = nullptr;  ///< the stream of the last ones; null: there were none
};

/// REQUIRES: a cache of this backend.
const DeviceKvCache& device_cache(const KvCache& cache);

}  // namespace headrace::cuda
