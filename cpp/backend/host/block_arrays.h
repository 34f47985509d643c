#pragma once

// Blocks, or slots, that lie in arrays, a piece of each in every array; and host blocks for them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/backend.h"

namespace headrace {

class BlockArrays {
 public:
  explicit BlockArrays(int32_t num_blocks) : num_blocks_(num_blocks) {}

  /// `data`: the first block's piece; from each to the next it is `stride` bytes. They live as long
  /// as this, and may be of 0 bytes.
  void add_array(void* data, size_t piece_bytes, size_t stride);
  int64_t num_arrays() const noexcept { return static_cast<int64_t>(arrays_.size()); }
  /// A block's piece in an array. REQUIRES: there are such.
  std::span<std::byte> piece(int64_t array, int32_t block) const noexcept;

  /// `storage`: of count * (bytes of a block in all arrays). REQUIRES: there are none yet.
  void add_host_blocks(int32_t count, Backend::Buffer storage);
  /// Throws InternalError unless there are such a block and host block.
  void check(const BlockCopy& copy) const;
  /// Copies the pieces in one array. REQUIRES: check().
  void copy(const BlockCopy& copy, int64_t array) const;

 private:
  struct Array {
    std::byte* data;
    size_t piece_bytes, stride;
    size_t host_offset;  ///< of its piece in a host block
  };

  int32_t num_blocks_;
  std::vector<Array> arrays_;
  size_t block_bytes_ = 0;        ///< of all pieces
  Backend::Buffer host_storage_;  ///< [host block][array]
  int32_t num_host_blocks_ = 0;
};

}  // namespace headrace
