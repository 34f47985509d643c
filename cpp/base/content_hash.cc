#include "base/content_hash.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace headrace {

namespace {

// Odd, so that multiplying by it loses nothing.
constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
constexpr size_t kLanes = 8;
constexpr size_t kBlock = kLanes * sizeof(uint64_t);

/// One to one in `word`, and one to one in `state`.
uint64_t mixed(uint64_t state, uint64_t word) {
  const uint64_t product = (state ^ word) * kFactor;
  return product ^ (product >> 32);  // a multiplication moves bits up only
}

void mix_block(std::array<uint64_t, kLanes>& lanes, const char* block) {
  for (size_t i = 0; i < kLanes; ++i) {
    uint64_t word;
    std::memcpy(&word, block + i * sizeof word, sizeof word);
    lanes[i] = mixed(lanes[i], word);
  }
}

}  // namespace

uint64_t content_hash(const void* data, size_t bytes) noexcept {
  const char* at = static_cast<const char*>(data);
  std::array<uint64_t, kLanes> lanes;
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = (i + 1) * kFactor;
  size_t left = bytes;
  for (; left >= kBlock; left -= kBlock, at += kBlock) mix_block(lanes, at);
  if (left > 0) {
    char last[kBlock] = {};
    std::memcpy(last, at, left);
    mix_block(lanes, last);
  }
  uint64_t hash = bytes;
  for (const uint64_t lane : lanes) hash = mixed(hash, lane);
  hash = (hash ^ (hash >> 32)) * kFactor;
  return hash ^ (hash >> 29);
}

uint64_t combine_hashes(std::span<const uint64_t> pieces) noexcept {
  return content_hash(pieces.data(), pieces.size_bytes());
}

uint64_t parallel_hash(uint64_t bytes, int32_t threads,
                       const std::function<uint64_t(uint64_t, size_t)>& hash_piece) {
  std::vector<uint64_t> pieces((bytes + kHashPiece - 1) / kHashPiece);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;  // guarded by mutex while threads run
  const auto work = [&]() noexcept {
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        const uint64_t offset = uint64_t{i} * kHashPiece;
        pieces[i] =
            hash_piece(offset, static_cast<size_t>(std::min<uint64_t>(kHashPiece, bytes - offset)));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = pieces.size();
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (size_t i = 1; i < std::min(static_cast<size_t>(threads), pieces.size()); ++i) {
        helpers.emplace_back(work);
      }
    } catch (const std::system_error&) {  // the threads that there are do the work
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return combine_hashes(pieces);
}

std::string hash_text(uint64_t hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = kDigits[hash >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace headrace
