#pragma once

// Tiles of rows that were packed one by one; for the linear kernels.

#include "backend/cpu/kernels/interleave.h"
#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

/// `count` units from each row in turns; returns where they end.
template <int kBytes, int R>
HEADRACE_SIMD_INLINE char* take_turns(const char* const (&rows)[R], int64_t offset, int64_t count,
                                      char* out) {
  for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, out += kBytes) {
      __builtin_memcpy(out, rows[r] + offset + i * kBytes, kBytes);
    }
  }
  return out;
}

/// The same of words, many of them.
template <int R>
HEADRACE_SIMD_INLINE void interleave_words(const char* const (&rows)[R], int64_t count, char* out) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + kLanes <= count; i += kLanes, out += 4 * R * kLanes) {
    __m512i words[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) words[r] = _mm512_loadu_si512(rows[r] + 4 * i);
    store_interleaved<R>(words, kLanes, out);
  }
#endif
  take_turns<4, R>(rows, 4 * i, count - i, out);
}

template <int R>
void gather_tile(const RowsToGather& task, int64_t first, char* out) {
  const char* rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    rows[r] = static_cast<const char*>(task.packed) + task.rows[first + r] * task.row_bytes;
  }
  if (task.unit_bytes == 4) return interleave_words<R>(rows, task.row_bytes / 4, out);
  const int64_t header_bytes = 4 * task.group_words;
  for (int64_t at = 0; at < task.row_bytes; at += task.group_bytes) {
    out = take_turns<4, R>(rows, at, task.group_words, out);
    out = take_turns<8, R>(rows, at + header_bytes, (task.group_bytes - header_bytes) / 8, out);
  }
}

using GatherTile = void (*)(const RowsToGather&, int64_t, char*);

inline void gather_rows(const RowsToGather& task, void* packed) {
  constexpr GatherTile kGatherTile[] = {gather_tile<1>, gather_tile<2>, gather_tile<3>,
                                        gather_tile<4>, gather_tile<5>, gather_tile<6>};
  for (int64_t first = 0; first < task.count; first += task.tile_rows) {
    const int64_t left = task.count - first;
    const int64_t tile = left < task.tile_rows ? left : task.tile_rows;
    kGatherTile[tile - 1](task, first, static_cast<char*>(packed) + first * task.row_bytes);
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
