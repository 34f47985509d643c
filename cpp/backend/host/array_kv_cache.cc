#include "backend/host/array_kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

constexpr int64_t kLine = 64;  ///< bytes that the processor reads together

int64_t layer_matrix_numbers(const StateRows& rows) {
  return rows.heads * state_matrix_numbers(rows);
}

size_t layer_bytes(const StateRows& rows) {
  const int64_t numbers = layer_matrix_numbers(rows) + int64_t{rows.channels} * rows.window;
  return static_cast<size_t>(round_up(numbers * int64_t{sizeof(float)}, kLine));
}

}  // namespace

int64_t state_matrix_numbers(const StateRows& rows) {
  return round_up(int64_t{rows.value_dim}, kMatrixColumns) * rows.key_dim;
}

size_t host_state_bytes(const CacheLayout& layout, int32_t count) {
  size_t bytes = 0;
  for (const StateRows& rows : layout.states) bytes += layer_bytes(rows);
  const auto all = checked_mul(bytes, static_cast<uint64_t>(count));
  HEADRACE_CHECK(all.has_value(), count, " slots of ", bytes, " bytes");
  return *all;
}

ArrayKvCache::ArrayKvCache(const CacheLayout& layout, int32_t num_blocks, int32_t num_slots,
                           Backend::Buffer states)
    : KvCache(layout, num_blocks, num_slots),
      blocks_(num_blocks),
      slots_(num_slots),
      states_(std::move(states)) {
  auto* data = static_cast<std::byte*>(states_.data);
  for (const StateRows& rows : layout.states) {
    slots_.add_array(data, layer_bytes(rows), layer_bytes(rows));
    data += layer_bytes(rows) * static_cast<size_t>(num_slots);
  }
}

void ArrayKvCache::add_blocks(void* data, size_t block_bytes) {
  constexpr size_t kPieces = 16;  // that threads may share
  const size_t piece = round_up(ceil_div(block_bytes, kPieces), static_cast<size_t>(kLine));
  for (size_t at = 0; at < block_bytes; at += piece) {
    blocks_.add_array(static_cast<std::byte*>(data) + at, std::min(piece, block_bytes - at),
                      block_bytes);
  }
}

float* ArrayKvCache::matrices(int32_t layer, int32_t slot) const noexcept {
  return reinterpret_cast<float*>(slots_.piece(layer, slot).data());
}

float* ArrayKvCache::window(int32_t layer, int32_t slot) const noexcept {
  return matrices(layer, slot) + layer_matrix_numbers(layout().state(layer));
}

void ArrayKvCache::add_host_blocks(int32_t count, Backend::Buffer storage) {
  blocks_.add_host_blocks(count, std::move(storage));
}

void ArrayKvCache::add_host_slots(int32_t count, Backend::Buffer storage) {
  slots_.add_host_blocks(count, std::move(storage));
}

void ArrayKvCache::check_copies(std::span<const BlockCopy> copies) const {
  for (const BlockCopy& copy : copies) (copy.is_state ? slots_ : blocks_).check(copy);
}

void ArrayKvCache::copy_parts(std::span<const BlockCopy> copies, int64_t first, int64_t end) const {
  for (const BlockCopy& copy : copies) {
    for (int64_t part = first; part < end; ++part) {
      const bool is_state = part >= blocks_.num_arrays();
      if (is_state != copy.is_state) continue;
      (is_state ? slots_ : blocks_).copy(copy, is_state ? part - blocks_.num_arrays() : part);
    }
  }
}

}  // namespace headrace
