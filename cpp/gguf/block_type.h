#pragma once

// How numbers lie in a tensor of a GGUF file.

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

/// Types that are read, by their numbers in files.
enum class BlockType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kF64 = 28,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct BlockTraits {
  BlockType type = BlockType::kF32;
  std::string_view name;  ///< "Q4_K"
  int64_t numbers = 1;    ///< of a block, along a row
  int64_t bytes = 4;      ///< of a block
};

/// Of a type by its number. Throws Error(kUnsupported) that names a type which isn't read, and says
/// what to do; `where` begins the message: "model.gguf: tensor 'output.weight'".
const BlockTraits& block_traits(uint32_t type, const std::string& where);
const BlockTraits& block_traits(BlockType type);

/// Numbers [first, first + count) of a row of blocks as float32: as the gguf package of Python has
/// them, bit by bit. REQUIRES: first and count are multiples of the block's numbers.
void expand_blocks(BlockType type, const void* row, int64_t first, int64_t count, float* out);

}  // namespace headrace
