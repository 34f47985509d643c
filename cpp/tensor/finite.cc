#include "tensor/finite.h"

#include <cstring>

namespace headrace {

namespace {

// No early exit: so compilers make vector code of it.

/// Whether a word has all of `exponent`'s bits: IEEE's mark of NaN and infinity.
template <class Word>
bool any_has(const void* data, Word exponent, int64_t count) noexcept {
  const auto* from = static_cast<const char*>(data);
  Word found = 0;
  for (int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, from + i * static_cast<int64_t>(sizeof word), sizeof word);
    found = static_cast<Word>(found | ((word & exponent) == exponent ? Word{1} : Word{0}));
  }
  return found != 0;
}

/// The smallest magnitude that rounds to infinity, as bits of a float32.
uint32_t limit_bits(DType dtype) noexcept {
  if (dtype == DType::kF16) return 0x477ff000u;
  return dtype == DType::kBF16 ? 0x7f7f8000u : 0x7f800000u;
}

}  // namespace

bool all_finite(const void* data, DType dtype, int64_t count) noexcept {
  if (dtype == DType::kF32) return !any_has<uint32_t>(data, 0x7f800000u, count);
  return !any_has<uint16_t>(data, dtype == DType::kBF16 ? 0x7f80u : 0x7c00u, count);
}

bool all_fit(const float* data, DType dtype, int64_t count) noexcept {
  const auto limit = static_cast<int32_t>(limit_bits(dtype));
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    int32_t bits;
    std::memcpy(&bits, data + i, sizeof bits);
    found |= (bits & 0x7fffffff) >= limit ? 1 : 0;
  }
  return found == 0;
}

}  // namespace headrace
