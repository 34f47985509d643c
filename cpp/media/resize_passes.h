#pragma once

// The two passes of a resize, per instruction set. Both round (sum + half) >> 22 to a byte between
// 0 and 255; sums are exact, so every instruction set gives the same bytes. This header is read by
// files of all instruction sets: it has no inline code.

#include <cstdint>

namespace headrace {

/// axis_weights() as plain pointers; a stride is a multiple of 4.
struct AxisTaps {
  int64_t in, out, stride;
  const int32_t* first;
  const int32_t* count;
  const int32_t* weight;
};

/// scratch: out * stride * 4 bytes, aligned to 4, and of a horizontal pass kRowsAtOnce * (3 * in +
/// kRowPadding) behind.
struct ResizePasses {
  /// from [rows, x.in, 3] -> to [rows, x.out, 3].
  void (*horizontal)(const uint8_t* from, int64_t rows, const AxisTaps& x, uint8_t* to,
                     uint8_t* scratch);
  /// from [rows, width] bytes, of which the first has the number `origin` -> to [y.out, width].
  void (*vertical)(const uint8_t* from, int64_t origin, int64_t width, const AxisTaps& y,
                   uint8_t* to, uint8_t* scratch);
};

/// Rows that a horizontal pass works on at once, and bytes behind each that it may read.
inline constexpr int64_t kRowsAtOnce = 4, kRowPadding = 32;

const ResizePasses& plain_passes();
/// Null on a machine without AVX2.
const ResizePasses* avx2_passes();

}  // namespace headrace
