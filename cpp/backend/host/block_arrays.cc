#include "backend/host/block_arrays.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace headrace {

void BlockArrays::add_array(void* data, size_t piece_bytes, size_t stride) {
  arrays_.push_back({static_cast<std::byte*>(data), piece_bytes, stride, block_bytes_});
  block_bytes_ += piece_bytes;
}

std::span<std::byte> BlockArrays::piece(int64_t array, int32_t block) const noexcept {
  const Array& in = arrays_[static_cast<size_t>(array)];
  return {in.data + static_cast<size_t>(block) * in.stride, in.piece_bytes};
}

void BlockArrays::add_host_blocks(int32_t count, Backend::Buffer storage) {
  HEADRACE_CHECK(count > 0 && num_host_blocks_ == 0, count, " and ", num_host_blocks_);
  HEADRACE_CHECK(block_bytes_ > 0 && storage.bytes / block_bytes_ >= static_cast<size_t>(count),
                 storage.bytes);
  host_storage_ = std::move(storage);
  num_host_blocks_ = count;
}

void BlockArrays::check(const BlockCopy& copy) const {
  HEADRACE_CHECK(copy.block >= 0 && copy.block < num_blocks_, "block ", copy.block, " of ",
                 num_blocks_);
  HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_blocks_, "host block ",
                 copy.host_block, " of ", num_host_blocks_);
}

void BlockArrays::copy(const BlockCopy& copy, int64_t array) const {
  const Array& in = arrays_[static_cast<size_t>(array)];
  if (in.piece_bytes == 0) return;
  std::byte* const own = piece(array, copy.block).data();
  std::byte* const host = static_cast<std::byte*>(host_storage_.data) +
                          static_cast<size_t>(copy.host_block) * block_bytes_ + in.host_offset;
  std::memcpy(copy.to_host ? host : own, copy.to_host ? own : host, in.piece_bytes);
}

}  // namespace headrace
