#include "memory/bfc_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/checked_math.h"

namespace headrace {

namespace {

std::optional<size_t> checked_round_up(size_t bytes, size_t multiple) {
  const auto padded = checked_add(bytes, multiple - 1);
  if (!padded) return std::nullopt;
  return *padded / multiple * multiple;
}

}  // namespace

BfcAllocator::BfcAllocator(RawAllocator* raw, const BfcOptions& options)
    : raw_(raw), options_(options) {
  HEADRACE_CHECK(raw != nullptr);
  HEADRACE_CHECK(
      std::has_single_bit(options.region_alignment) && options.region_alignment >= kAlignment,
      options.region_alignment);
  HEADRACE_CHECK(!options.single_region || options.limit_bytes >= options.region_alignment,
                 options.limit_bytes);
}

BfcAllocator::~BfcAllocator() {
  for (const auto& [address, bytes] : regions_) raw_->free(reinterpret_cast<void*>(address), bytes);
}

Result<void*> BfcAllocator::allocate(size_t bytes) {
  const MutexLock lock(mutex_);
  const auto rounded = checked_round_up(std::max<size_t>(bytes, 1), kAlignment);
  if (!rounded) return out_of_memory(bytes);
  auto chunk = find_free(*rounded);
  if (chunk == chunks_.end()) {
    if (!grow_for(*rounded)) return out_of_memory(bytes);
    chunk = find_free(*rounded);
    HEADRACE_CHECK(chunk != chunks_.end(), *rounded);
  }
  if (chunk->second.bytes > *rounded) split(chunk, *rounded);
  take_from_bin(chunk);
  chunk->second.in_use = true;
  chunk->second.requested = bytes;
  in_use_bytes_ += *rounded;
  requested_bytes_ += bytes;
  peak_in_use_bytes_ = std::max(peak_in_use_bytes_, in_use_bytes_);
  ++num_allocations_;
  return reinterpret_cast<void*>(chunk->first);
}

void BfcAllocator::free(void* data) {
  if (data == nullptr) return;
  const MutexLock lock(mutex_);
  auto chunk = chunks_.find(reinterpret_cast<uintptr_t>(data));
  HEADRACE_CHECK(chunk != chunks_.end() && chunk->second.in_use, "free of ", data);
  in_use_bytes_ -= chunk->second.bytes;
  requested_bytes_ -= chunk->second.requested;
  --num_allocations_;
  chunk->second.in_use = false;
  put_in_bin(coalesce(chunk));
}

size_t BfcAllocator::release_unused_locked() noexcept {
  size_t released = 0;
  for (auto region = regions_.begin(); region != regions_.end();) {
    const auto [address, bytes] = *region;
    const auto chunk = chunks_.find(address);
    if (chunk->second.in_use || chunk->second.bytes != bytes) {
      ++region;
      continue;
    }
    take_from_bin(chunk);
    chunks_.erase(chunk);
    region = regions_.erase(region);
    raw_->free(reinterpret_cast<void*>(address), bytes);
    released += bytes;
  }
  region_bytes_ -= released;
  return released;
}

BfcAllocator::ChunkMap::iterator BfcAllocator::find_free(size_t bytes) {
  for (int bin = bin_of(bytes); bin < kNumBins; ++bin) {
    const Bin& keys = bins_[static_cast<size_t>(bin)];
    const auto key = keys.lower_bound(FreeKey{bytes, 0});
    if (key != keys.end()) return chunks_.find(key->address);
  }
  return chunks_.end();
}

bool BfcAllocator::grow_for(size_t bytes) {
  const size_t limit =
      options_.limit_bytes == 0 ? std::numeric_limits<size_t>::max() : options_.limit_bytes;
  const size_t alignment = options_.region_alignment;
  if (options_.single_region) {
    const size_t whole = limit / alignment * alignment;
    return regions_.empty() && whole >= bytes && add_region(whole) != chunks_.end();
  }
  const auto least = checked_round_up(bytes, alignment);
  const auto wanted = checked_round_up(std::max(bytes, options_.min_region_bytes), alignment);
  if (!least || !wanted) return false;
  // Regions that nobody uses may hold the memory in pieces of the wrong size: a second try
  // without them.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const size_t room = (limit - region_bytes_) / alignment * alignment;
    const size_t size = std::min(*wanted, room);
    if (size >= *least) {
      if (add_region(size) != chunks_.end()) return true;
      if (size > *least && add_region(*least) != chunks_.end()) return true;
    }
    if (release_unused_locked() == 0) return false;
  }
  return false;
}

BfcAllocator::ChunkMap::iterator BfcAllocator::add_region(size_t bytes) {
  const Result<void*> data = raw_->alloc(bytes, options_.region_alignment);
  if (!data.ok()) return chunks_.end();
  const auto address = reinterpret_cast<uintptr_t>(data.value());
  try {
    auto& bin = bins_[static_cast<size_t>(bin_of(bytes))];
    const auto chunk =
        chunks_.emplace(address, Chunk{bytes, 0, address, false, Bin::node_type{}}).first;
    regions_.emplace(address, bytes);
    bin.insert(FreeKey{bytes, address});
    region_bytes_ += bytes;
    return chunk;
  } catch (...) {
    chunks_.erase(address);
    regions_.erase(address);
    raw_->free(data.value(), bytes);
    throw;
  }
}

void BfcAllocator::split(ChunkMap::iterator chunk, size_t bytes) {
  // All that may throw comes before all that changes anything.
  const FreeKey rest_key{chunk->second.bytes - bytes, chunk->first + bytes};
  Bin holder;
  auto node = holder.extract(holder.insert(rest_key).first);
  const auto rest =
      chunks_.emplace_hint(std::next(chunk), rest_key.address,
                           Chunk{rest_key.bytes, 0, chunk->second.region, false, std::move(node)});
  take_from_bin(chunk);
  chunk->second.bytes = bytes;
  put_in_bin(chunk);
  put_in_bin(rest);
}

BfcAllocator::ChunkMap::iterator BfcAllocator::coalesce(ChunkMap::iterator chunk) noexcept {
  const auto absorb = [this](ChunkMap::iterator left, ChunkMap::iterator right)
                          HEADRACE_REQUIRES(mutex_) {
                            left->second.bytes += right->second.bytes;
                            chunks_.erase(right);
                          };
  const auto joins = [&](ChunkMap::iterator other) {
    return !other->second.in_use && other->second.region == chunk->second.region;
  };
  if (const auto next = std::next(chunk); next != chunks_.end() && joins(next)) {
    take_from_bin(next);
    absorb(chunk, next);
  }
  if (chunk != chunks_.begin()) {
    if (const auto previous = std::prev(chunk); joins(previous)) {
      take_from_bin(previous);
      absorb(previous, chunk);
      chunk = previous;
    }
  }
  return chunk;
}

void BfcAllocator::put_in_bin(ChunkMap::iterator chunk) noexcept {
  auto& node = chunk->second.bin_node;
  node.value() = FreeKey{chunk->second.bytes, chunk->first};
  bins_[static_cast<size_t>(bin_of(chunk->second.bytes))].insert(std::move(node));
}

void BfcAllocator::take_from_bin(ChunkMap::iterator chunk) noexcept {
  auto& bin = bins_[static_cast<size_t>(bin_of(chunk->second.bytes))];
  chunk->second.bin_node = bin.extract(FreeKey{chunk->second.bytes, chunk->first});
}

Failure BfcAllocator::out_of_memory(size_t bytes) const {
  const size_t free_bytes = region_bytes_ - in_use_bytes_;
  const std::string limit =
      options_.limit_bytes == 0 ? std::string("none") : str_cat(options_.limit_bytes, " bytes");
  return {ErrorCode::kOutOfMemory,
          str_cat("cannot allocate ", bytes, " bytes: ", in_use_bytes_, " bytes are in use and ",
                  free_bytes, " more are held but too scattered or too few (limit: ", limit,
                  "). Use a smaller model, context or batch, or allow more memory.")};
}

BfcStats BfcAllocator::stats() const {
  const MutexLock lock(mutex_);
  BfcStats out;
  out.limit_bytes = options_.limit_bytes;
  out.region_bytes = region_bytes_;
  out.in_use_bytes = in_use_bytes_;
  out.requested_bytes = requested_bytes_;
  out.peak_in_use_bytes = peak_in_use_bytes_;
  out.num_regions = regions_.size();
  out.num_allocations = num_allocations_;
  for (const Bin& bin : bins_) {
    if (!bin.empty()) out.largest_free_bytes = bin.rbegin()->bytes;
  }
  return out;
}

BfcSnapshot BfcAllocator::snapshot() const {
  const MutexLock lock(mutex_);
  BfcSnapshot out;
  for (const auto& [address, bytes] : regions_) out.regions.push_back({address, bytes});
  for (const auto& [address, chunk] : chunks_) {
    out.chunks.push_back({address, chunk.bytes, chunk.in_use});
  }
  for (int bin = 0; bin < kNumBins; ++bin) {
    for (const FreeKey& key : bins_[static_cast<size_t>(bin)]) {
      out.free_entries.push_back({bin, key.address, key.bytes});
    }
  }
  return out;
}

int BfcAllocator::bin_of(size_t chunk_bytes) noexcept {
  const size_t units = std::max<size_t>(chunk_bytes / kAlignment, 1);
  return std::min(static_cast<int>(std::bit_width(units)) - 1, kNumBins - 1);
}

}  // namespace headrace
