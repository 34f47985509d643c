#include "engine/media/encoder_cache.h"

#include <gtest/gtest.h>

namespace headrace::internal {
namespace {

EncoderCache::Key key(uint64_t number) { return {MediaDigest{number, 0, 0, 0}, 0}; }

std::shared_ptr<const EncodedRows> rows(size_t bytes) {
  return std::make_shared<const EncodedRows>(EncodedRows{{}, bytes, 0, 1});
}

TEST(EncoderCache, DropsWhatWasUsedLongestAgo) {
  EncoderCache cache(100);
  cache.insert(key(1), rows(40));
  cache.insert(key(2), rows(40));
  EXPECT_NE(cache.find(key(1)), nullptr);
  EXPECT_TRUE(cache.make_room(50));
  EXPECT_EQ(cache.find(key(2)), nullptr);
  EXPECT_NE(cache.find(key(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 40u);
}

TEST(EncoderCache, KeepsWhatIsHeld) {
  EncoderCache cache(100);
  cache.insert(key(1), rows(60));
  auto held = cache.find(key(1));
  EXPECT_FALSE(cache.make_room(50));
  EXPECT_FALSE(cache.make_room(101));
  EXPECT_TRUE(cache.make_room(40));
  held.reset();
  EXPECT_TRUE(cache.make_room(100));
  EXPECT_EQ(cache.bytes(), 0u);
}

}  // namespace
}  // namespace headrace::internal
