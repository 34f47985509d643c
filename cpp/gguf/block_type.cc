#include "gguf/block_type.h"

#include <array>

#include "base/check.h"

namespace headrace {

namespace {

constexpr std::array kTraits = {
    BlockTraits{BlockType::kF32, "F32", 1, 4},
    BlockTraits{BlockType::kF16, "F16", 1, 2},
    BlockTraits{BlockType::kQ4_0, "Q4_0", 32, 18},
    BlockTraits{BlockType::kQ4_1, "Q4_1", 32, 20},
    BlockTraits{BlockType::kQ5_0, "Q5_0", 32, 22},
    BlockTraits{BlockType::kQ5_1, "Q5_1", 32, 24},
    BlockTraits{BlockType::kQ8_0, "Q8_0", 32, 34},
    BlockTraits{BlockType::kQ2_K, "Q2_K", 256, 84},
    BlockTraits{BlockType::kQ3_K, "Q3_K", 256, 110},
    BlockTraits{BlockType::kQ4_K, "Q4_K", 256, 144},
    BlockTraits{BlockType::kQ5_K, "Q5_K", 256, 176},
    BlockTraits{BlockType::kQ6_K, "Q6_K", 256, 210},
    BlockTraits{BlockType::kIQ4_NL, "IQ4_NL", 32, 18},
    BlockTraits{BlockType::kIQ4_XS, "IQ4_XS", 256, 136},
    BlockTraits{BlockType::kF64, "F64", 1, 8},
    BlockTraits{BlockType::kBF16, "BF16", 1, 2},
    BlockTraits{BlockType::kMXFP4, "MXFP4", 32, 17},
};

struct OtherType {
  uint32_t type;
  std::string_view name;
};

/// Types of files of today that aren't read.
constexpr std::array kOthers = {
    OtherType{9, "Q8_1"},    OtherType{15, "Q8_K"},    OtherType{16, "IQ2_XXS"},
    OtherType{17, "IQ2_XS"}, OtherType{18, "IQ3_XXS"}, OtherType{19, "IQ1_S"},
    OtherType{21, "IQ3_S"},  OtherType{22, "IQ2_S"},   OtherType{24, "I8"},
    OtherType{25, "I16"},    OtherType{26, "I32"},     OtherType{27, "I64"},
    OtherType{29, "IQ1_M"},  OtherType{34, "TQ1_0"},   OtherType{35, "TQ2_0"},
    OtherType{40, "NVFP4"},  OtherType{41, "Q1_0"},    OtherType{42, "Q2_0"},
};

/// Types that llama.cpp had once.
constexpr std::array kRemoved = {
    OtherType{4, "Q4_2"},        OtherType{5, "Q4_3"},        OtherType{31, "Q4_0_4_4"},
    OtherType{32, "Q4_0_4_8"},   OtherType{33, "Q4_0_8_8"},   OtherType{36, "IQ4_NL_4_4"},
    OtherType{37, "IQ4_NL_4_8"}, OtherType{38, "IQ4_NL_8_8"},
};

[[noreturn]] void refuse(uint32_t type, const std::string& where) {
  std::string fault = str_cat("has the unknown type ", type);
  for (const OtherType& other : kOthers) {
    if (other.type == type) fault = str_cat("is of type ", other.name, ", which isn't read");
  }
  for (const OtherType& other : kRemoved) {
    if (other.type == type) {
      fault = str_cat("is of type ", other.name, ", made for an old llama.cpp");
    }
  }
  throw_error(ErrorCode::kUnsupported, where, " ", fault, ": get a file in Q4_K_M or Q8_0.");
}

const BlockTraits* find_traits(uint32_t type) {
  for (const BlockTraits& traits : kTraits) {
    if (static_cast<uint32_t>(traits.type) == type) return &traits;
  }
  return nullptr;
}

}  // namespace

const BlockTraits& block_traits(uint32_t type, const std::string& where) {
  const BlockTraits* found = find_traits(type);
  if (found == nullptr) refuse(type, where);
  return *found;
}

const BlockTraits& block_traits(BlockType type) {
  const BlockTraits* found = find_traits(static_cast<uint32_t>(type));
  HEADRACE_CHECK(found != nullptr);
  return *found;
}

}  // namespace headrace
