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
  const std::vector<uint64_t> sizes{kHashPiece, 0, 5 * kHashPiece + 17, 1, 0};
  std::vector<std::string> contents;
  std::vector<uint64_t> want;
  for (size_t i = 0; i < sizes.size(); ++i) {
    contents.push_back(random_bytes(sizes[i], static_cast<uint32_t>(5 + i)));
    std::vector<uint64_t> pieces;
    for (size_t at = 0; at < sizes[i]; at += kHashPiece) {
      pieces.push_back(content_hash(contents[i].data() + at, std::min(kHashPiece, sizes[i] - at)));
    }
    want.push_back(combine_hashes(pieces));
  }
  const auto hash_piece = [&](const HashPiece& piece) {
    return content_hash(contents[piece.content].data() + piece.offset, piece.bytes);
  };
  for (const int32_t threads : {1, 2, 8}) {
    EXPECT_EQ(parallel_hash(sizes, threads, hash_piece), want) << threads;
  }
  EXPECT_TRUE(parallel_hash({}, 4, hash_piece).empty());
}

TEST(ParallelHash, ThrowsWhatAPieceThrows) {
  const auto hash_piece = [](const HashPiece& piece) -> uint64_t {
    if (piece.offset == 3 * kHashPiece) throw std::runtime_error("the third");
    return piece.offset;
  };
  const std::vector<uint64_t> sizes{9 * kHashPiece};
  EXPECT_THROW(parallel_hash(sizes, 4, hash_piece), std::runtime_error);
}

}  // namespace
}  // namespace headrace
