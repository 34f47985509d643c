#include "base/check.h"
#include "gguf/block_parts.h"
#include "gguf/block_type.h"
#include "gguf/expand_super_blocks.h"

// As in expand_super_blocks.cc, sums and products are rounded one by one.

namespace headrace {

namespace {

constexpr int kGroup = 32;  // numbers of a block that has one scale

void expand_f16(const uint8_t* block, float* out) noexcept { *out = load_f16(block); }

void expand_bf16(const uint8_t* block, float* out) noexcept {
  *out = bf16_to_f32(load_from<uint16_t>(block));
}

void expand_f32(const uint8_t* block, float* out) noexcept { std::memcpy(out, block, sizeof *out); }

void expand_f64(const uint8_t* block, float* out) noexcept {
  *out = static_cast<float>(load_from<double>(block));
}

void expand_q4_0(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block);
  for (int i = 0; i < kGroup; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

void expand_q4_1(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block), low = load_f16(block + 2);
  for (int i = 0; i < kGroup; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + low;
}

/// Four bits behind the word of the fifth ones.
int five_bits(const uint8_t* bytes, int i) noexcept {
  const auto fifth = static_cast<int>(load_from<uint32_t>(bytes) >> i & 1u);
  return nibble(bytes + 4, i) + fifth * 16;
}

void expand_q5_0(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block);
  for (int i = 0; i < kGroup; ++i) out[i] = d * static_cast<float>(five_bits(block + 2, i) - 16);
}

void expand_q5_1(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block), low = load_f16(block + 2);
  for (int i = 0; i < kGroup; ++i) out[i] = d * static_cast<float>(five_bits(block + 4, i)) + low;
}

void expand_q8_0(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block);
  for (int i = 0; i < kGroup; ++i)
    out[i] = d * static_cast<float>(load_from<int8_t>(block + 2 + i));
}

void expand_iq4_nl(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block);
  for (int i = 0; i < kGroup; ++i) {
    const auto code = static_cast<size_t>(nibble(block + 2, i));
    out[i] = d * static_cast<float>(kUnevenValues[code]);
  }
}

/// The values are twice those of e2m1, so the scale is half of e8m0's: 2^(e - 128), also for 255.
/// As integers: there is no -0.
void expand_mxfp4(const uint8_t* block, float* out) noexcept {
  constexpr std::array<int8_t, 16> kValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t e = block[0], bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
  float d;
  std::memcpy(&d, &bits, sizeof d);
  for (int i = 0; i < kGroup; ++i) {
    out[i] = d * static_cast<float>(kValues[static_cast<size_t>(nibble(block + 1, i))]);
  }
}

using ExpandBlock = void (*)(const uint8_t* block, float* out) noexcept;

ExpandBlock expander_of(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return expand_f32;
    case BlockType::kF16:
      return expand_f16;
    case BlockType::kQ4_0:
      return expand_q4_0;
    case BlockType::kQ4_1:
      return expand_q4_1;
    case BlockType::kQ5_0:
      return expand_q5_0;
    case BlockType::kQ5_1:
      return expand_q5_1;
    case BlockType::kQ8_0:
      return expand_q8_0;
    case BlockType::kQ2_K:
      return expand_q2_k;
    case BlockType::kQ3_K:
      return expand_q3_k;
    case BlockType::kQ4_K:
      return expand_q4_k;
    case BlockType::kQ5_K:
      return expand_q5_k;
    case BlockType::kQ6_K:
      return expand_q6_k;
    case BlockType::kIQ4_NL:
      return expand_iq4_nl;
    case BlockType::kIQ4_XS:
      return expand_iq4_xs;
    case BlockType::kF64:
      return expand_f64;
    case BlockType::kBF16:
      return expand_bf16;
    case BlockType::kMXFP4:
      return expand_mxfp4;
  }
  HEADRACE_CHECK(false, "no block type");
}

}  // namespace

void expand_blocks(BlockType type, const void* row, int64_t first, int64_t count, float* out) {
  const BlockTraits& traits = block_traits(type);
  HEADRACE_CHECK(first % traits.numbers == 0 && count % traits.numbers == 0);
  const ExpandBlock expand = expander_of(type);
  const auto* block = static_cast<const uint8_t*>(row) + first / traits.numbers * traits.bytes;
  for (int64_t i = 0; i < count; i += traits.numbers, block += traits.bytes) expand(block, out + i);
}

}  // namespace headrace
