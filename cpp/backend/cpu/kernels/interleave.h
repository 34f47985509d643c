#pragma once

// Packed activations: the first words (of 32 bits) of a tile's rows, then their second ones, ...

#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// Numbers from a tile of `tile` rows to the next one, which starts at `row`: what to fetch while
/// the tile is packed. 0 if there is none.
HEADRACE_SIMD_INLINE int64_t next_tile_offset(const RowsToPack& rows, int64_t row, int64_t tile) {
  return row < rows.rows + rows.rows_behind ? tile * rows.row_stride : 0;
}

#if defined(__AVX512F__)

/// Where the words of R interleaved vectors come from: word `lane` of result j is word
/// source[j][lane] of the row in whose mask the lane is.
template <int R>
struct InterleaveTable {
  int32_t source[R][kLanes];
  uint16_t lanes[R][R];  ///< [result][row]
};

template <int R>
constexpr InterleaveTable<R> make_interleave_table() {
  InterleaveTable<R> table{};
  for (int i = 0; i < R * kLanes; ++i) {
    table.source[i / kLanes][i % kLanes] = i / R;
    table.lanes[i / kLanes][i % R] |= static_cast<uint16_t>(1u << i % kLanes);
  }
  return table;
}

template <int R>
constexpr InterleaveTable<R> kInterleaveTable = make_interleave_table<R>();

/// Writes the first `count` words of each row: count * R words.
template <int R>
HEADRACE_SIMD_INLINE void store_interleaved(const __m512i (&rows)[R], int count, void* out) {
  const InterleaveTable<R>& table = kInterleaveTable<R>;
  auto* to = static_cast<int32_t*>(out);
#pragma GCC unroll 8
  for (int j = 0; j < R; ++j) {
    const __m512i source = _mm512_loadu_si512(table.source[j]);
    __m512i words = rows[0];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      words = _mm512_mask_permutexvar_epi32(words, table.lanes[j][r], source, rows[r]);
    }
    const int left = count * R - j * kLanes;
    if (left >= kLanes) {
      _mm512_storeu_si512(to + j * kLanes, words);
    } else if (left > 0) {
      _mm512_mask_storeu_epi32(to + j * kLanes, first_lanes(left), words);
    }
  }
}

#else

template <int R, class Vector>
HEADRACE_SIMD_INLINE void store_interleaved(const Vector (&rows)[R], int count, void* out) {
  int32_t words[R][kLanes];
  __builtin_memcpy(words, rows, sizeof words);
  auto* to = static_cast<char*>(out);
  for (int i = 0; i < count; ++i) {
    for (int r = 0; r < R; ++r, to += 4) __builtin_memcpy(to, &words[r][i], 4);
  }
}

#endif

}  // namespace
}  // namespace headrace::HEADRACE_ISA
