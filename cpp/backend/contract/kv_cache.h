#pragma once

#include <cstdint>
#include <utility>

#include "backend/contract/cache_layout.h"

namespace headrace {

/// What all layers keep, in blocks; how a block lies in memory is the backend's. Must be destroyed
/// before its backend.
class KvCache {
 public:
  virtual ~KvCache() = default;
  const CacheLayout& layout() const noexcept { return layout_; }
  int32_t block_size() const noexcept { return layout_.block_size; }
  DType dtype() const noexcept { return layout_.dtype(); }
  int32_t num_blocks() const noexcept { return num_blocks_; }
  /// State slots; 0 of a layout without states.
  int32_t num_state_slots() const noexcept { return num_state_slots_; }

 protected:
  KvCache(CacheLayout layout, int32_t num_blocks, int32_t num_state_slots = 0)
      : layout_(std::move(layout)), num_blocks_(num_blocks), num_state_slots_(num_state_slots) {}

 private:
  CacheLayout layout_;
  int32_t num_blocks_;
  int32_t num_state_slots_;
};

}  // namespace headrace
