#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/backend.h"
#include "cuda/host/pinned.h"
#include "cuda/kernels/kv_layout.h"

namespace headrace::cuda {

/// Per layer keys, then values, as kv_layout.h lays them out. One block more than the model has
/// takes what padding rows write.
class DeviceKvCache final : public KvCache {
 public:
  /// `storage`: block_bytes(spec) for each block and the spare one, contents undefined: kernels
  /// read no position that its sequence hasn't written.
  DeviceKvCache(const KvCacheSpec& spec, int32_t num_blocks, Backend::Buffer storage);
  /// Waits for copies of host blocks.
  ~DeviceKvCache() override;

  /// Of one block over all layers.
  static size_t block_bytes(const KvCacheSpec& spec);

  KvLayout layout() const;
  void* keys(int32_t layer) const { return half(2 * layer); }
  void* values(int32_t layer) const { return half(2 * layer + 1); }
  /// A place in the spare block.
  int64_t spare_slot() const { return int64_t{num_blocks()} * spec().block_size; }

  /// Page-locked memory for `count` blocks. Throws Error(kOutOfMemory). REQUIRES: there is none.
  void add_host_blocks(CudaContext& context, int32_t count);
  /// Puts the copies on `stream`, which outlives this. Throws Error(kDevice).
  void copy_blocks(std::span<const BlockCopy> copies, Stream stream);
  /// A block's part of the first layer's keys, for tests.
  std::byte* first_part(int32_t block) const;

 private:
  /// Bytes of one block in one of the 2 * num_layers arrays, and of a whole array.
  size_t part_bytes() const;
  size_t array_bytes() const { return part_bytes() * (static_cast<size_t>(num_blocks()) + 1); }
  void* half(int32_t index) const;

  Backend::Buffer storage_;
  CudaContext* context_ = nullptr;  ///< of the host blocks; null: there are none
  PinnedBuffer host_storage_;       ///< [host block][array]
  int32_t num_host_blocks_ = 0;
  Stream copies_ = nullptr;  ///< the stream of the last ones; null: there were none
};

}  // namespace headrace::cuda
