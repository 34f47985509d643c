// Weights of 22 bits don't fit the 16 of vpmaddwd, which multiplies and adds pairs: so each is
// split into weight >> 12 (signed) and its low 12 bits, and there are two sums. 4096 * high + low
// is exact modulo 2^32, and so is the result, whose sum fits 32 bits. Nothing from std:: here: see
// resize_passes.h.

#include <immintrin.h>

#include "media/resize_passes.h"

namespace headrace {

namespace {

constexpr int kBits = 22, kLowBits = 12;
constexpr int32_t kLowMask = (1 << kLowBits) - 1;

struct Sums {
  __m256i high, low;
};

inline void add(Sums& sums, __m256i pairs, __m256i high, __m256i low) {
  sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(pairs, high));
  sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(pairs, low));
}

inline __m256i joined(const Sums& sums) {
  return _mm256_add_epi32(_mm256_slli_epi32(sums.high, kLowBits), sums.low);
}

inline int32_t pair(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(first) & 0xffffu) |
                              (static_cast<uint32_t>(second) << 16));
}

/// `count` weights, an even number, as count / 2 pairs of high parts and pairs of low parts by
/// turns.
inline void split(const int32_t* weight, int64_t count, int32_t* pairs) {
  for (int64_t i = 0; i < count; i += 2) {
    pairs[i] = pair(weight[i] >> kLowBits, weight[i + 1] >> kLowBits);
    pairs[i + 1] = pair(weight[i] & kLowMask, weight[i + 1] & kLowMask);
  }
}

inline __m256i load_rows(const uint8_t* first, const uint8_t* second) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/// The result of four rows' sums: bytes 4 * r and on are red, green, blue and 0 of row (0, 2, 1,
/// 3)[r].
inline __m128i finish(const Sums& a, const Sums& b) {
  const __m256i first = _mm256_srai_epi32(joined(a), kBits);
  const __m256i second = _mm256_srai_epi32(joined(b), kBits);
  const __m256i words = _mm256_packs_epi32(first, second);
  const __m256i bytes = _mm256_packus_epi16(words, words);
  return _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

/// Four rows at once, so that they share the weights. A vector holds 16 bytes of two rows, of which
/// a shuffle makes pairs of taps, channel by channel.
void four_rows(const uint8_t* rows, int64_t pitch, const AxisTaps& x, const int32_t* pairs,
               uint8_t* const* to) {
  const __m256i taps01 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i taps23 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m256i half = _mm256_set1_epi32(1 << (kBits - 1));
  for (int64_t o = 0; o < x.out; ++o) {
    const int32_t* weight = pairs + o * x.stride;
    const uint8_t* pixel = rows + 3 * static_cast<int64_t>(x.first[o]);
    Sums a = {_mm256_setzero_si256(), half}, b = a;
    for (int32_t i = 0; i < x.count[o]; i += 4, pixel += 12) {
      const __m256i high01 = _mm256_set1_epi32(weight[i]), low01 = _mm256_set1_epi32(weight[i + 1]);
      const __m256i high23 = _mm256_set1_epi32(weight[i + 2]);
      const __m256i low23 = _mm256_set1_epi32(weight[i + 3]);
      const __m256i upper = load_rows(pixel, pixel + pitch);
      const __m256i lower = load_rows(pixel + 2 * pitch, pixel + 3 * pitch);
      add(a, _mm256_shuffle_epi8(upper, taps01), high01, low01);
      add(b, _mm256_shuffle_epi8(lower, taps01), high01, low01);
      add(a, _mm256_shuffle_epi8(upper, taps23), high23, low23);
      add(b, _mm256_shuffle_epi8(lower, taps23), high23, low23);
    }
    alignas(16) uint8_t bytes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), finish(a, b));
    // A fourth byte is overwritten by the next pixel; behind the last one lies another row.
    const size_t width = o + 1 < x.out ? 4 : 3;
    if (width == 4) {
      for (int r = 0; r < 4; ++r) __builtin_memcpy(to[r] + 3 * o, bytes + 4 * r, 4);
    } else {
      for (int r = 0; r < 4; ++r) __builtin_memcpy(to[r] + 3 * o, bytes + 4 * r, 3);
    }
  }
}

void horizontal(const uint8_t* from, int64_t rows, const AxisTaps& x, uint8_t* to,
                uint8_t* scratch) {
  auto* pairs = reinterpret_cast<int32_t*>(scratch);
  split(x.weight, x.out * x.stride, pairs);
  uint8_t* copies = scratch + x.out * x.stride * static_cast<int64_t>(sizeof(int32_t));
  const int64_t pitch = 3 * x.in + kRowPadding;
  // What lies behind a row meets weights of zero; it is set once.
  for (int64_t r = 0; r < kRowsAtOnce; ++r) {
    __builtin_memset(copies + r * pitch + 3 * x.in, 0, kRowPadding);
  }
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    // Which copy is which row of a vector: finish() tells. Too few rows: the last one several
    // times.
    constexpr int64_t kOrder[kRowsAtOnce] = {0, 2, 1, 3};
    uint8_t* targets[kRowsAtOnce];
    for (int64_t r = 0; r < kRowsAtOnce; ++r) {
      const int64_t number = row + r < rows ? row + r : rows - 1;
      __builtin_memcpy(copies + r * pitch, from + number * 3 * x.in, static_cast<size_t>(3 * x.in));
      targets[kOrder[r]] = to + number * 3 * x.out;
    }
    four_rows(copies, pitch, x, pairs, targets);
  }
}

/// 32 columns of one output row. In each lane of 16 columns, sums[k] has those from 4 * k on.
void columns32(const uint8_t* from, int64_t width, int32_t count, const int32_t* pairs,
               uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (kBits - 1));
  Sums sums[4];
  for (Sums& sum : sums) sum = {zero, half};
  for (int32_t i = 0; i < count; i += 2) {
    const uint8_t* row = from + i * width;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    // Behind an odd number of rows there may be none.
    const __m256i b =
        i + 1 < count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + width)) : zero;
    const __m256i high = _mm256_set1_epi32(pairs[i]), low = _mm256_set1_epi32(pairs[i + 1]);
    const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
    add(sums[0], _mm256_unpacklo_epi8(left, zero), high, low);
    add(sums[1], _mm256_unpackhi_epi8(left, zero), high, low);
    add(sums[2], _mm256_unpacklo_epi8(right, zero), high, low);
    add(sums[3], _mm256_unpackhi_epi8(right, zero), high, low);
  }
  __m256i value[4];
  for (int k = 0; k < 4; ++k) value[k] = _mm256_srai_epi32(joined(sums[k]), kBits);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_packus_epi16(_mm256_packs_epi32(value[0], value[1]),
                                          _mm256_packs_epi32(value[2], value[3])));
}

void vertical(const uint8_t* from, int64_t origin, int64_t width, const AxisTaps& y, uint8_t* to,
              uint8_t* scratch) {
  if (width < 32) return plain_passes().vertical(from, origin, width, y, to, scratch);
  auto* pairs = reinterpret_cast<int32_t*>(scratch);
  split(y.weight, y.out * y.stride, pairs);
  for (int64_t o = 0; o < y.out; ++o, to += width) {
    const uint8_t* top = from + (y.first[o] - origin) * width;
    for (int64_t column = 0; column < width; column += 32) {
      // The last ones may overlap those before, which get the same values again.
      const int64_t at = column + 32 <= width ? column : width - 32;
      columns32(top + at, width, y.count[o], pairs + o * y.stride, to + at);
    }
  }
}

}  // namespace

const ResizePasses* avx2_passes() {
  static constexpr ResizePasses kPasses{horizontal, vertical};
  return __builtin_cpu_supports("avx2") ? &kPasses : nullptr;
}

}  // namespace headrace
