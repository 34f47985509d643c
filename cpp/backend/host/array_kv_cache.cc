#include "backend/host/array_kv_cache.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace headrace {

void ArrayKvCache::add_array(void* data, size_t piece_bytes) {
  arrays_.push_back({static_cast<std::byte*>(data), piece_bytes, block_bytes_});
  block_bytes_ += piece_bytes;
}

std::byte* ArrayKvCache::piece(int64_t array, int32_t block) const noexcept {
  const Array& in = arrays_[static_cast<size_t>(array)];
  return in.data + static_cast<size_t>(block) * in.piece_bytes;
}

void ArrayKvCache::add_host_blocks(int32_t count, Backend::Buffer storage) {
  HEADRACE_CHECK(count > 0 && num_host_blocks_ == 0, count, " and ", num_host_blocks_);
  HEADRACE_CHECK(storage.bytes / block_bytes_ >= static_cast<size_t>(count), storage.bytes);
  host_storage_ = std::move(storage);
  num_host_blocks_ = count;
}

void ArrayKvCache::check_copies(std::span<const BlockCopy> copies) const {
  for (const BlockCopy& copy : copies) {
    HEADRACE_CHECK(copy.block >= 0 && copy.block < num_blocks(), "block ", copy.block);
    HEADRACE_CHECK(copy.host_block >= 0 && copy.host_block < num_host_blocks_, "host block ",
                   copy.host_block, " of ", num_host_blocks_);
  }
}

void ArrayKvCache::copy_arrays(std::span<const BlockCopy> copies, int64_t first,
                               int64_t end) const {
  for (const BlockCopy& copy : copies) {
    std::byte* const host_block = static_cast<std::byte*>(host_storage_.data) +
                                  static_cast<size_t>(copy.host_block) * block_bytes_;
    for (int64_t array = first; array < end; ++array) {
      const Array& in = arrays_[static_cast<size_t>(array)];
      std::byte* const own = piece(array, copy.block);
      std::byte* const host = host_block + in.host_offset;
      std::memcpy(copy.to_host ? host : own, copy.to_host ? own : host, in.piece_bytes);
    }
  }
}

}  // namespace headrace
