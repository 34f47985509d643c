// Blocks of every type against what the gguf package makes of them (tests/golden/gguf_blocks.py).

#include "gguf/block_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "cpp/model/expect_error.h"

namespace headrace {
namespace {

std::string golden() {
  std::ifstream in(HEADRACE_GGUF_BLOCKS, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST(ExpandBlocks, HasTheBitsOfTheGgufPackage) {
  const std::string file = golden();
  std::set<uint32_t> types;
  for (size_t at = 0; at < file.size();) {
    uint32_t head[2];
    ASSERT_LE(at + sizeof head, file.size());
    std::memcpy(head, &file[at], sizeof head);
    at += sizeof head;
    const BlockTraits& traits = block_traits(head[0], "golden");
    types.insert(head[0]);
    const auto bytes = static_cast<size_t>(head[1] * traits.bytes);
    const int64_t count = head[1] * traits.numbers;
    std::vector<float> expected(static_cast<size_t>(count)), got(expected.size());
    ASSERT_LE(at + bytes + count * sizeof(float), file.size());
    std::memcpy(expected.data(), &file[at + bytes], expected.size() * sizeof(float));
    // In two parts: the second doesn't begin with the row.
    const int64_t first = 3 * traits.numbers;
    expand_blocks(traits.type, &file[at], 0, first, got.data());
    expand_blocks(traits.type, &file[at], first, count - first, got.data() + first);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(same(got[i], expected[i]))
          << traits.name << ", number " << i << ": " << got[i] << ", expected " << expected[i];
    }
    at += bytes + expected.size() * sizeof(float);
  }
  EXPECT_EQ(types.size(), 17u);
}

TEST(BlockTraits, OtherTypesAreRefusedByName) {
  const auto refused = [](uint32_t type, const std::string& name) {
    expect_error(ErrorCode::kUnsupported, {"m.gguf: tensor 'a'", name, "get a file in Q4_K_M"},
                 [&] { block_traits(type, "m.gguf: tensor 'a'"); });
  };
  refused(4, "Q4_2, made for an old llama.cpp");
  refused(38, "IQ4_NL_8_8, made for an old llama.cpp");
  refused(16, "IQ2_XXS");
  refused(34, "TQ1_0");
  refused(40, "NVFP4");
  refused(24, "I8");
  refused(43, "unknown type 43");
  refused(~0u, "unknown type 4294967295");
}

}  // namespace
}  // namespace headrace
