#include "gguf/expand_super_blocks.h"

#include "gguf/block_parts.h"

// Sums and products are rounded one by one, in the order in which they are written: the build
// doesn't contract them (cmake/HeadraceTargets.cmake).

namespace headrace {

namespace {

constexpr int kNumbers = 256;

/// The two bits of number i in Q2_K and Q3_K: 128 numbers share 32 bytes.
int two_bits(const uint8_t* bytes, int i) noexcept {
  return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

struct ScaleAndMin {
  int scale, min;
};

/// Of group g of 8, six bits each, in the 12 bytes of Q4_K and Q5_K.
ScaleAndMin scale_and_min(const uint8_t* bytes, int g) noexcept {
  if (g < 4) return {bytes[g] & 63, bytes[g + 4] & 63};
  return {(bytes[g + 4] & 15) | bytes[g - 4] >> 6 << 4, bytes[g + 4] >> 4 | bytes[g] >> 6 << 4};
}

/// Q4_K; with the codes' fifth bits, Q5_K.
void expand_six_bit_scales(const uint8_t* block, const uint8_t* fifth_bits, const uint8_t* codes,
                           float* out) noexcept {
  const float d = load_f16(block), d_min = load_f16(block + 2);
  for (int g = 0; g < kNumbers / 32; ++g) {
    const auto [scale, min] = scale_and_min(block + 4, g);
    const float step = d * static_cast<float>(scale), low = d_min * static_cast<float>(min);
    for (int i = 0; i < 32; ++i) {
      int code = codes[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
      if (fifth_bits != nullptr) code += (fifth_bits[i] >> g & 1) * 16;
      out[g * 32 + i] = step * static_cast<float>(code) - low;
    }
  }
}

}  // namespace

void expand_q2_k(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block + 80), d_min = load_f16(block + 82);
  for (int i = 0; i < kNumbers; ++i) {
    const int scale = block[i / 16] & 15, min = block[i / 16] >> 4;
    out[i] = (d * static_cast<float>(scale)) * static_cast<float>(two_bits(block + 16, i)) -
             d_min * static_cast<float>(min);
  }
}

void expand_q3_k(const uint8_t* block, float* out) noexcept {
  const uint8_t *third_bits = block, *codes = block + 32, *scales = block + 96;
  const float d = load_f16(block + 108);
  for (int i = 0; i < kNumbers; ++i) {
    const int g = i / 16;
    const int low = scales[g % 8] >> (g / 8 * 4) & 15, high = scales[8 + g % 4] >> (g / 4 * 2) & 3;
    const int code = two_bits(codes, i) + (third_bits[i % 32] >> (i / 32) & 1) * 4;
    out[i] = (d * static_cast<float>(low + high * 16 - 32)) * static_cast<float>(code - 4);
  }
}

void expand_q4_k(const uint8_t* block, float* out) noexcept {
  expand_six_bit_scales(block, nullptr, block + 16, out);
}

void expand_q5_k(const uint8_t* block, float* out) noexcept {
  expand_six_bit_scales(block, block + 16, block + 48, out);
}

void expand_q6_k(const uint8_t* block, float* out) noexcept {
  const uint8_t *low_bits = block, *high_bits = block + 128, *scales = block + 192;
  const float d = load_f16(block + 208);
  for (int i = 0; i < kNumbers; ++i) {
    const int half = i / 128, r = i % 128 / 32, l = i % 32;
    const int low = low_bits[half * 64 + r % 2 * 32 + l] >> (r / 2 * 4) & 15;
    const int high = high_bits[half * 32 + l] >> (r * 2) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = step * static_cast<float>(low + high * 16 - 32);
  }
}

void expand_iq4_xs(const uint8_t* block, float* out) noexcept {
  const float d = load_f16(block);
  const int high_bits = load_from<uint16_t>(block + 2);
  for (int g = 0; g < kNumbers / 32; ++g) {
    const int low = block[4 + g / 2] >> (g % 2 * 4) & 15, high = high_bits >> (g * 2) & 3;
    const float step = d * static_cast<float>(low + high * 16 - 32);
    for (int i = 0; i < 32; ++i) {
      const int code = nibble(block + 8 + g * 16, i);
      out[g * 32 + i] = step * static_cast<float>(kUnevenValues[static_cast<size_t>(code)]);
    }
  }
}

}  // namespace headrace
