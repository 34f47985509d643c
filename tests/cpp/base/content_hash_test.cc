#include "base/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace headrace {
namespace {

std::string random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string out(count, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

TEST(ContentHash, StaysWhatFilesHold) {
  EXPECT_EQ(hash_text(content_hash("", 0)), "8659f7fbfe8209de");
  EXPECT_EQ(hash_text(content_hash("headrace", 8)), "aeac980004fb72d1");
  const std::string bytes = random_bytes(1000, 1);
  EXPECT_EQ(hash_text(content_hash(bytes.data(), bytes.size())), "6263e6f38f7b611b");
}

TEST(ContentHash, NoticesEveryFlippedBit) {
  std::string bytes = random_bytes(203, 2);
  std::set<uint64_t> seen{content_hash(bytes.data(), bytes.size())};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(seen.insert(content_hash(bytes.data(), bytes.size())).second) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  }
}

TEST(ContentHash, NoticesLengthAndOrder) {
  const std::string zeros(300, '\0');
  std::set<uint64_t> seen;
  for (size_t size = 0; size <= zeros.size(); ++size) {
    EXPECT_TRUE(seen.insert(content_hash(zeros.data(), size)).second) << size;
  }
  std::string bytes = random_bytes(256, 3);
  const uint64_t before = content_hash(bytes.data(), bytes.size());
  std::swap_ranges(bytes.begin(), bytes.begin() + 64, bytes.begin() + 128);
  EXPECT_NE(content_hash(bytes.data(), bytes.size()), before);
}

TEST(ContentHash, TakesAnyAlignment) {
  const std::string bytes = random_bytes(500, 4);
  const uint64_t want = content_hash(bytes.data(), bytes.size());
  for (size_t shift = 1; shift < 8; ++shift) {
    const std::string moved = std::string(shift, 'x') + bytes;
    EXPECT_EQ(content_hash(moved.data() + shift, bytes.size()), want);
  }
}

TEST(ParallelHash, IsTheSameOnAnyNumberOfThreads) {
  for (const size_t size : {size_t{0}, size_t{1}, kHashPiece, 5 * kHashPiece + 17}) {
    const std::string bytes = random_bytes(size, 5);
    const auto piece = [&](uint64_t offset, size_t count) {
      return content_hash(bytes.data() + offset, count);
    };
    std::vector<uint64_t> pieces;
    for (size_t at = 0; at < size; at += kHashPiece) {
      pieces.push_back(piece(at, std::min(kHashPiece, size - at)));
    }
    for (const int32_t threads : {1, 2, 8}) {
      EXPECT_EQ(parallel_hash(size, threads, piece), combine_hashes(pieces)) << size;
    }
  }
}

TEST(ParallelHash, ThrowsWhatAPieceThrows) {
  const auto piece = [](uint64_t offset, size_t) -> uint64_t {
    if (offset == 3 * kHashPiece) throw std::runtime_error("the third");
    return offset;
  };
  EXPECT_THROW(parallel_hash(9 * kHashPiece, 4, piece), std::runtime_error);
}

}  // namespace
}  // namespace headrace
