#include "base/content_hash.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/first_failure.h"

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

std::vector<HashPiece> cut(std::span<const uint64_t> sizes) {
  std::vector<HashPiece> pieces;
  for (size_t content = 0; content < sizes.size(); ++content) {
    for (uint64_t at = 0; at < sizes[content]; at += kHashPiece) {
      const uint64_t left = sizes[content] - at;
      pieces.push_back({content, at, static_cast<size_t>(std::min<uint64_t>(kHashPiece, left))});
    }
  }
  return pieces;
}

/// Calls `task` with 0 .. count - 1 on up to `threads` threads. Throws what it throws.
template <class Task>
void run_parallel(size_t count, int32_t threads, const Task& task) {
  std::atomic<size_t> next{0};
  FirstFailure failure;
  const auto work = [&]() noexcept {
    try {
      for (size_t i = next++; i < count; i = next++) task(i);
    } catch (...) {
      failure.keep();
      next = count;
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (size_t i = 1; i < std::min(static_cast<size_t>(threads), count); ++i) {
        helpers.emplace_back(work);
      }
    } catch (const std::system_error&) {  // the threads that there are do the work
    }
    work();
  }
  if (const auto first = failure.take()) std::rethrow_exception(first);
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

std::vector<uint64_t> parallel_hash(std::span<const uint64_t> sizes, int32_t threads,
                                    const std::function<uint64_t(const HashPiece&)>& hash_piece) {
  const std::vector<HashPiece> pieces = cut(sizes);
  std::vector<uint64_t> digests(pieces.size());
  run_parallel(pieces.size(), threads, [&](size_t i) { digests[i] = hash_piece(pieces[i]); });
  std::vector<uint64_t> out;
  size_t first = 0;
  for (size_t content = 0; content < sizes.size(); ++content) {
    size_t end = first;
    while (end < pieces.size() && pieces[end].content == content) ++end;
    out.push_back(combine_hashes(std::span(digests).subspan(first, end - first)));
    first = end;
  }
  return out;
}

std::string hash_text(uint64_t hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = kDigits[hash >> (60 - 4 * i) & 15];
  return text;
}

}  // namespace headrace
