#include "backend/cpu/kernels/interleave.h"
#include "backend/cpu/kernels/quant_kernels.h"
#include "backend/cpu/simd/int8.h"

// Rounds activations to int8. Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kTiny = 0x1p-100f;  // 127 divided by less could overflow

// Groups whose scales are found before the first is rounded: their reductions and divisions
// overlap.
constexpr int kChunk = 16;

/// A tile's rows on their way.
template <int R>
struct Tile {
  const float* x[R];
  int64_t ahead;                        ///< from a number to the one of the next tile
  float last_group[R][kMaxQuantGroup];  ///< where k ends within a group: what is left, then zeros
  F32 probes[R];                        ///< become NaN with the first element that isn't finite
  float steps[R][kChunk], factors[R][kChunk];
};

template <int R>
HEADRACE_SIMD_INLINE const float* group_source(const Tile<R>& tile, int r, const QuantRows& rows,
                                               int64_t group) {
  const int64_t first = group * rows.format.group_size;
  return first + rows.format.group_size <= rows.k ? tile.x[r] + first : tile.last_group[r];
}

/// Largest magnitude of a group.
HEADRACE_SIMD_INLINE float find_top(const float* x, int32_t size, F32& probe) {
  F32 most = zero(), least = zero();
  for (int32_t i = 0; i < size; i += kLanes) {
    const F32 v = load(x + i);
    most = max(most, v);
    least = min(least, v);
    probe = fma(v, zero(), probe);
  }
  return reduce_max(max(most, sub(zero(), least)));
}

template <int R>
void find_scales(const QuantRows& rows, int64_t first, int64_t last, Tile<R>& tile) {
  for (int r = 0; r < R; ++r) {
    float tops[kChunk] = {};
    for (int64_t g = first; g < last; ++g) {
      const float* next = tile.x[r] + g * rows.format.group_size + tile.ahead;
      for (int32_t i = 0; i < rows.format.group_size; i += 16) prefetch(next + i);
      tops[g - first] =
          find_top(group_source(tile, r, rows, g), rows.format.group_size, tile.probes[r]);
    }
    const F32 most = set1(127.0f), tiny = set1(kTiny);
    for (int i = 0; i < kChunk; i += kLanes) {
      const F32 top = load(tops + i);
      store(tile.steps[r] + i, select_greater(tiny, top, zero(), div(top, most)));
      store(tile.factors[r] + i, select_greater(tiny, top, zero(), div(most, top)));
    }
  }
}

HEADRACE_SIMD_INLINE I32 round_vector(const float* x, F32 factor) {
  // What isn't finite becomes some number: the row is marked.
  return to_i32(min(max(mul(load(x), factor), set1(-127.0f)), set1(127.0f)));
}

/// Rounds 4 * `count` activations to `count` words and adds them to `sum`.
HEADRACE_SIMD_INLINE I32 round_words(const float* x, int count, F32 factor, I32& sum) {
  I32 parts[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    parts[i] = i * kLanes < 4 * count ? round_vector(x + i * kLanes, factor) : set1_i32(0);
    sum = add_i32(sum, parts[i]);
  }
  return narrow_i8(parts[0], parts[1], parts[2], parts[3]);
}

template <int R>
HEADRACE_SIMD_INLINE void store_quads(const I32 (&words)[R], int count, char* out) {
  if constexpr (kQuadBytes == 4) {
    store_interleaved<R>(words, count, out);
  } else {
    int8_t values[R][4 * kLanes];
    __builtin_memcpy(values, words, sizeof values);
    for (int i = 0; i < count; ++i) {
      for (int r = 0; r < R; ++r, out += kQuadBytes) write_quad(out, values[r] + 4 * i);
    }
  }
}

/// Rounds group `group` of all rows, the `at`th of a chunk; `to` has its steps.
template <int R>
HEADRACE_SIMD_INLINE void round_group(const QuantRows& rows, int64_t group, int64_t at,
                                      const Tile<R>& tile, char* to) {
  const QuantFormat& format = rows.format;
  I32 sums[R];
  char* quads = to + 8 * R;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = set1_i32(0);
  for (int32_t i = 0; i < format.group_size; i += 4 * kLanes) {
    const int count = format.group_size - i < 4 * kLanes ? (format.group_size - i) / 4 : kLanes;
    I32 words[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      words[r] = round_words(group_source(tile, r, rows, group) + i, count,
                             set1(tile.factors[r][at]), sums[r]);
    }
    store_quads<R>(words, count, quads + i / 4 * R * kQuadBytes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int32_t sum = reduce_i32(sums[r]);
    // With zero points two int16 for multiply_pairs: -sum and 0.
    const int32_t start = format.zero_points
                              ? static_cast<int32_t>(static_cast<uint16_t>(-sum))
                              : -(quant_zero(format.bits) - dot_zero(format.bits)) * sum;
    __builtin_memcpy(to + 4 * r, &tile.steps[r][at], 4);
    __builtin_memcpy(to + 4 * (R + r), &start, 4);
  }
}

template <int R>
void pack_tile(const QuantRows& rows, int64_t row, char* to) {
  const int64_t size = rows.format.group_size;
  const int64_t group_bytes = (8 + size / 4 * kQuadBytes) * R;
  const int64_t groups = (rows.k + size - 1) / size;
  Tile<R> tile;
  tile.ahead = next_tile_offset(rows, row + R, R);
  for (int r = 0; r < R; ++r) {
    tile.x[r] = rows.x + (row + r) * rows.row_stride;
    tile.probes[r] = zero();
    const int64_t whole = rows.k / size * size;
    for (int64_t i = whole; whole < rows.k && i < whole + size; ++i) {
      tile.last_group[r][i - whole] = i < rows.k ? tile.x[r][i] : 0.0f;
    }
  }
  for (int64_t first = 0; first < groups; first += kChunk) {
    const int64_t last = first + kChunk < groups ? first + kChunk : groups;
    find_scales(rows, first, last, tile);
    for (int64_t g = first; g < last; ++g) {
      round_group(rows, g, g - first, tile, to + g * group_bytes);
    }
  }
  for (int r = 0; r < R; ++r) {
    const float bad = reduce_add(tile.probes[r]);
    if (bad != bad) __builtin_memcpy(to + 4 * r, &bad, sizeof bad);
  }
}

using PackTile = void (*)(const QuantRows&, int64_t, char*);

PackTile pack_tile_of(int64_t rows) {
  static_assert(kQuantTileRows <= 6);
  switch (rows) {
    case 1:
      return pack_tile<1>;
#if defined(__AVX2__)
    case 2:
      return pack_tile<2>;
#endif
#if defined(__AVX512F__)
    case 3:
      return pack_tile<3>;
#endif
#if defined(__AVX512VNNI__)
    case 4:
      return pack_tile<4>;
    case 5:
      return pack_tile<5>;
#endif
    default:
      return pack_tile<kQuantTileRows>;
  }
}

}  // namespace

void quant_pack_rows(const QuantRows& rows, void* packed) {
  const int64_t k_groups = (rows.k + rows.format.group_size - 1) / rows.format.group_size;
  const int64_t row_bytes = k_groups * (8 + rows.format.group_size / 4 * kQuadBytes);
  for (int64_t first = 0; first < rows.rows; first += rows.tile_rows) {
    const int64_t left = rows.rows - first;
    pack_tile_of(left < rows.tile_rows ? left : rows.tile_rows)(
        rows, first, static_cast<char*>(packed) + first * row_bytes);
  }
}

}  // namespace headrace::HEADRACE_ISA
