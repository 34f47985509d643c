#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

using Digest = std::array<uint64_t, 4>;

Digest digest(const std::string& text) {
  Sha256 hash;
  hash.update(text.data(), text.size());
  return hash.finish();
}

// FIPS 180-4's examples.
TEST(Sha256, GivesTheStandardsDigests) {
  EXPECT_EQ(digest("abc"), (Digest{0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c,
                                   0xb410ff61f20015ad}));
  EXPECT_EQ(digest(""), (Digest{0xe3b0c44298fc1c14, 0x9afbf4c8996fb924, 0x27ae41e4649b934c,
                                0xa495991b7852b855}));
  EXPECT_EQ(
      digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      (Digest{0x248d6a61d20638b8, 0xe5c026930c3e6039, 0xa33ce45964ff2167, 0xf6ecedd419db06c1}));
  EXPECT_EQ(digest(std::string(1000000, 'a')), (Digest{0xcdc76e5c9914fb92, 0x81a1c7e284d73e67,
                                                       0xf1809a48a497200e, 0x046d39ccc7112cd0}));
}

TEST(Sha256, DoesNotDependOnHowItIsCut) {
  const std::string text(300, 'x');
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(text.data(), cut);
    hash.update(text.data() + cut, text.size() - cut);
    ASSERT_EQ(hash.finish(), digest(text)) << cut;
  }
  Sha256 number;
  number.update_number(0x0807060504030201);
  EXPECT_EQ(number.finish(), digest("\1\2\3\4\5\6\7\10"));
}

}  // namespace
}  // namespace headrace
