#pragma once

// What blocks of several types have in common.

#include <array>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace headrace {

/// A little-endian value at any address.
template <class T>
T load_from(const uint8_t* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline float load_f16(const uint8_t* bytes) noexcept {
  return f16_to_f32(load_from<uint16_t>(bytes));
}

/// Code i of 32 in 16 bytes: first all low halves, then all high ones.
inline int nibble(const uint8_t* bytes, int i) noexcept {
  return bytes[i % 16] >> (i / 16 * 4) & 15;
}

/// What the codes of IQ4_NL and IQ4_XS stand for.
inline constexpr std::array<int8_t, 16> kUnevenValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                         1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace headrace
