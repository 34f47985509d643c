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

inline __m128i load_weights(const int32_t* weight) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight));
}

/// Four weights as [high of 0 and 1, high of 2 and 3, low of 0 and 1, low of 2 and 3].
inline __m256i split4(const int32_t* weight) {
  const __m128i w = load_weights(weight);
  const __m128i high = _mm_srai_epi32(w, kLowBits);
  const __m128i low = _mm_and_si128(w, _mm_set1_epi32(kLowMask));
  return _mm256_broadcastsi128_si256(_mm_packs_epi32(high, low));
}

/// The four output bytes (red, green, blue, 0) of each of four rows.
inline __m128i finish(const Sums* sums) {
  const __m128i half = _mm_set1_epi32(1 << (kBits - 1));
  __m128i row[4];
  for (int r = 0; r < 4; ++r) {
    const __m256i all = joined(sums[r]);
    const __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    row[r] = _mm_srai_epi32(_mm_add_epi32(sum, half), kBits);
  }
  return _mm_packus_epi16(_mm_packs_epi32(row[0], row[1]), _mm_packs_epi32(row[2], row[3]));
}

/// Four rows at once, so that they share what is done with the weights. A lane of a vector holds a
/// pair of taps, channel by channel; the other lane the next pair.
void four_rows(const uint8_t* rows, int64_t pitch, const AxisTaps& x, uint8_t* const* to) {
  const __m256i shuffle = _mm256_setr_epi8(                      //
      0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
      6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i pick_high = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const __m256i pick_low = _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3);
  for (int64_t o = 0; o < x.out; ++o) {
    const int32_t* weight = x.weight + o * x.stride;
    const uint8_t* at = rows + 3 * static_cast<int64_t>(x.first[o]);
    Sums sums[4];
    for (Sums& sum : sums) sum = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int32_t i = 0; i < x.count[o]; i += 4) {
      const __m256i weights = split4(weight + i);
      const __m256i high = _mm256_permutevar8x32_epi32(weights, pick_high);
      const __m256i low = _mm256_permutevar8x32_epi32(weights, pick_low);
      const uint8_t* pixels = at + 3 * static_cast<int64_t>(i);
      for (int r = 0; r < 4; ++r) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels + r * pitch));
        add(sums[r], _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), shuffle), high, low);
      }
    }
    alignas(16) uint8_t bytes[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(bytes), finish(sums));
    for (int r = 0; r < 4; ++r) __builtin_memcpy(to[r] + 3 * o, bytes + 4 * r, 3);
  }
}

void horizontal(const uint8_t* from, int64_t rows, const AxisTaps& x, uint8_t* to,
                uint8_t* scratch) {
  const int64_t pitch = 3 * x.in + kRowPadding;
  // What lies behind a row meets weights of zero; it is set once.
  for (int64_t r = 0; r < kRowsAtOnce; ++r) {
    __builtin_memset(scratch + r * pitch + 3 * x.in, 0, kRowPadding);
  }
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    uint8_t* targets[kRowsAtOnce];
    for (int64_t r = 0; r < kRowsAtOnce; ++r) {
      const int64_t number = row + r < rows ? row + r : rows - 1;
      __builtin_memcpy(scratch + r * pitch, from + number * 3 * x.in,
                       static_cast<size_t>(3 * x.in));
      targets[r] = to + number * 3 * x.out;
    }
    four_rows(scratch, pitch, x, targets);
  }
}

/// 32 columns of one output row. In each lane of 16 columns, sums[k] has those from 4 * k on.
void columns32(const uint8_t* from, int64_t width, int32_t count, const int32_t* weight,
               uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  Sums sums[4];
  for (Sums& sum : sums) sum = {zero, zero};
  for (int32_t i = 0; i < count; i += 2) {
    const bool two = i + 1 < count;
    const uint8_t* row = from + i * width;
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    const __m256i b =
        two ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + width)) : zero;
    const int32_t first = weight[i], second = two ? weight[i + 1] : 0;
    const __m256i high = _mm256_set1_epi32(pair(first >> kLowBits, second >> kLowBits));
    const __m256i low = _mm256_set1_epi32(pair(first & kLowMask, second & kLowMask));
    const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
    add(sums[0], _mm256_unpacklo_epi8(left, zero), high, low);
    add(sums[1], _mm256_unpackhi_epi8(left, zero), high, low);
    add(sums[2], _mm256_unpacklo_epi8(right, zero), high, low);
    add(sums[3], _mm256_unpackhi_epi8(right, zero), high, low);
  }
  const __m256i half = _mm256_set1_epi32(1 << (kBits - 1));
  __m256i value[4];
  for (int k = 0; k < 4; ++k) {
    value[k] = _mm256_srai_epi32(_mm256_add_epi32(joined(sums[k]), half), kBits);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm256_packus_epi16(_mm256_packs_epi32(value[0], value[1]),
                                          _mm256_packs_epi32(value[2], value[3])));
}

void vertical(const uint8_t* from, int64_t width, const AxisTaps& y, uint8_t* to) {
  if (width < 32) return plain_passes().vertical(from, width, y, to);
  for (int64_t o = 0; o < y.out; ++o, to += width) {
    const uint8_t* top = from + static_cast<int64_t>(y.first[o]) * width;
    const int32_t* weight = y.weight + o * y.stride;
    for (int64_t column = 0; column < width; column += 32) {
      // The last ones may overlap those before, which get the same values again.
      const int64_t at = column + 32 <= width ? column : width - 32;
      columns32(top + at, width, y.count[o], weight, to + at);
    }
  }
}

}  // namespace

const ResizePasses* avx2_passes() {
  static constexpr ResizePasses kPasses{horizontal, vertical};
  return __builtin_cpu_supports("avx2") ? &kPasses : nullptr;
}

}  // namespace headrace
