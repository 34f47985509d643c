#pragma once

// A KV cache whose blocks lie in arrays, a piece of each block in every array, and its host blocks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/backend.h"

namespace headrace {

class ArrayKvCache : public KvCache {
 public:
  int64_t num_arrays() const noexcept { return static_cast<int64_t>(arrays_.size()); }
  /// A block's piece in an array. REQUIRES: there are such.
  std::byte* piece(int64_t array, int32_t block) const noexcept;

  /// `storage`: of count * (bytes of a block in all arrays). REQUIRES: there are none yet.
  void add_host_blocks(int32_t count, Backend::Buffer storage);
  /// Throws InternalError unless there are such blocks and host blocks.
  void check_copies(std::span<const BlockCopy> copies) const;
  /// Makes the copies in arrays [first, end), one after the other. Arrays are independent: threads
  /// may share them. REQUIRES: check_copies().
  void copy_arrays(std::span<const BlockCopy> copies, int64_t first, int64_t end) const;

 protected:
  using KvCache::KvCache;
  /// `data`: num_blocks pieces behind each other, which live as long as the cache.
  void add_array(void* data, size_t piece_bytes);

 private:
  struct Array {
    std::byte* data;
    size_t piece_bytes;
    size_t host_offset;  ///< of its piece in a host block
  };

  std::vector<Array> arrays_;
  size_t block_bytes_ = 0;        ///< of all pieces
  Backend::Buffer host_storage_;  ///< [host block][array]
  int32_t num_host_blocks_ = 0;
};

}  // namespace headrace
