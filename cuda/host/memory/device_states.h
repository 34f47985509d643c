#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/contract/backend.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

/// The slots of a cache: in each, one behind the other, the windows and the matrices of all layers
/// (state_step.h), each from a multiple of 256 bytes on.
class DeviceStates {
 public:
  /// `storage`: slot_bytes(layout) for each slot, contents undefined.
  DeviceStates(const CacheLayout& layout, int32_t num_slots, Backend::Buffer storage);

  /// Of one slot; 0 without states. REQUIRES: the layout passes check_cache_layout().
  static size_t slot_bytes(const CacheLayout& layout);

  /// No data: there are no slots.
  StateArray windows(int32_t layer) const { return {at(layer).windows, stride_}; }
  StateArray matrices(int32_t layer) const { return {at(layer).matrices, stride_}; }

  /// Page-locked memory for `count` slots. Throws Error(kOutOfMemory). REQUIRES: there is none.
  void add_host_slots(CudaContext& context, int32_t count);
  /// Puts a copy of a slot on `stream`. Throws Error(kDevice).
  void copy(CudaContext& context, const BlockCopy& copy, Stream stream);

 private:
  struct Place {
    float *windows = nullptr, *matrices = nullptr;
  };
  Place at(int32_t layer) const {
    return num_slots_ == 0 ? Place{} : places_[static_cast<size_t>(layer)];
  }

  Backend::Buffer storage_;
  std::vector<Place> places_;  ///< by layer, in slot 0
  int64_t stride_;             ///< numbers of a slot
  int32_t num_slots_, num_host_slots_ = 0;
  PinnedBuffer host_storage_;
};

}  // namespace headrace::cuda
