#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "cuda/kernels/kv_layout.h"

namespace headrace::cuda {

/// Per layer keys, then values, as kv_layout.h lays them out. One block more than the model has
/// takes what padding rows write.
class DeviceKvCache final : public KvCache {
 public:
  /// `storage`: block_bytes(spec) for each block and the spare one, contents undefined: kernels
  /// read no position that its sequence hasn't written.
  DeviceKvCache(const KvCacheSpec& spec, int32_t num_blocks, Backend::Buffer storage);

  /// Of one block over all layers.
  static size_t block_bytes(const KvCacheSpec& spec);

  KvLayout layout() const;
  void* keys(int32_t layer) const { return half(2 * layer); }
  void* values(int32_t layer) const { return half(2 * layer + 1); }
  /// A place in the spare block.
  int64_t spare_slot() const { return int64_t{num_blocks()} * spec().block_size; }

 private:
  void* half(int32_t index) const;
  Backend::Buffer storage_;
};

}  // namespace headrace::cuda
