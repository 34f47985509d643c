#pragma once

// A cache in host memory with its blocks and state slots, and with its host blocks and slots.
//
// The states of a layer in a slot: matrices, each with room for its value_dim rounded up to
// kMatrixColumns, so that a backend may lay it out in whole vectors; then the window
// [window][channels], the oldest row first.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/backend.h"
#include "backend/host/block_arrays.h"

namespace headrace {

inline constexpr int64_t kMatrixColumns = 16;

/// Numbers of a matrix as a slot has it.
int64_t state_matrix_numbers(const StateRows& rows);
/// Backend::state_slot_bytes() of such caches, for `count` slots. REQUIRES: the layout passes
/// check_cache_layout(), and the layout and the count check_num_slots().
size_t host_state_bytes(const CacheLayout& layout, int32_t count = 1);

class ArrayKvCache : public KvCache {
 public:
  int64_t num_arrays() const noexcept { return blocks_.num_arrays(); }
  /// A block's piece in an array. REQUIRES: there are such.
  std::span<std::byte> piece(int64_t array, int32_t block) const noexcept {
    return blocks_.piece(array, block);
  }
  /// A layer's matrices in a slot, one after the other. REQUIRES: it has such.
  float* matrices(int32_t layer, int32_t slot) const noexcept;
  /// [window][channels]. REQUIRES: it has such.
  float* window(int32_t layer, int32_t slot) const noexcept;

  /// `storage`: of count * kv_block_bytes(), or state_slot_bytes(). REQUIRES: there are none yet.
  void add_host_blocks(int32_t count, Backend::Buffer storage);
  void add_host_slots(int32_t count, Backend::Buffer storage);
  /// Throws InternalError unless there are such blocks, slots, host blocks and host slots.
  void check_copies(std::span<const BlockCopy> copies) const;
  /// Parts of copies, which are independent: threads may share them.
  int64_t num_copy_parts() const noexcept { return blocks_.num_arrays() + slots_.num_arrays(); }
  /// Makes parts [first, end) of the copies, one after the other. REQUIRES: check_copies().
  void copy_parts(std::span<const BlockCopy> copies, int64_t first, int64_t end) const;

 protected:
  /// `states`: host_state_bytes(layout, num_slots) bytes.
  ArrayKvCache(const CacheLayout& layout, int32_t num_blocks, int32_t num_slots,
               Backend::Buffer states);
  /// `data`: num_blocks blocks of so many bytes behind each other, which live as long as the cache;
  /// each is copied in pieces.
  void add_blocks(void* data, size_t block_bytes);

 private:
  BlockArrays blocks_;
  BlockArrays slots_;  ///< an array for each layer, if the layout has states
  Backend::Buffer states_;
};

}  // namespace headrace
