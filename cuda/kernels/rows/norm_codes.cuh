#pragma once

// A normed row as codes, by the block that has it: the bits of round_rows().

#include "cuda/kernels/rounded/row_codes.cuh"
#include "cuda/kernels/rows/norm_row.cuh"
#include "cuda/kernels/rows/rms_norm.h"

namespace headrace::cuda {

/// Nobody wants codes.
struct NoCodes {
  static constexpr bool kWanted = false;
};

struct NormCodes {
  static constexpr bool kWanted = true;
  RowCodes rows;
};

/// Calls f(NoCodes or NormCodes), whichever the norm wants.
template <class F>
void with_norm_codes(const RmsNormArgs& args, F&& f) {
  const RoundedOut& rounded = args.rounded;
  if (rounded.data == nullptr) return f(NoCodes{});
  HEADRACE_CHECK(rounds_rows(rounded.layout.format) && rounded.layout.matrix.k == args.out.cols,
                 args.out.cols);
  f(NormCodes{{rounded.layout, args.out.rows, rounded.data}});
}

template <class T, int kSize>
__device__ inline float chunk_top(const Chunk<T, kSize>& values, float top) {
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) top = greatest(top, finite_size(to_float(values.at[i])));
  return top;
}

template <class T, int kSize>
__device__ inline void put_chunk_codes(const Chunk<T, kSize>& values, const RowCodes& rows,
                                       const RowScale& scale, uint8_t* to) {
  uint32_t words[kSize / 4] = {};
  HEADRACE_UNROLL
  for (int i = 0; i < kSize; ++i) {
    words[i / 4] |= rows.code_of(to_float(values.at[i]), scale) << i % 4 * 8;
  }
  if constexpr (kSize == 8) {
    *reinterpret_cast<uint2*>(to) = uint2{words[0], words[1]};
  } else {
    static_assert(kSize == 4);
    *reinterpret_cast<uint32_t*>(to) = words[0];
  }
}

/// By all threads of a block, which has row blockIdx.x. `held`: what the thread has just written of
/// row `from`; the chunks behind those are read again. A thread's chunks of a unit are in lanes
/// side by side. `partial`: [kWarp], shared.
template <class T, int kSize>
__device__ inline void put_codes(const Chunk<T, kSize> (&held)[kHeldChunks], const T* from,
                                 int64_t cols, const NormCodes& codes, float* partial) {
  const RowCodes& rows = codes.rows;
  const int64_t first = int64_t{threadIdx.x} * kSize, step = int64_t{blockDim.x} * kSize;
  uint8_t* const to = rows.codes + blockIdx.x * rows.stride;
  float* const scales = rows.scales + blockIdx.x;
  // All threads make as many calls, with zeros behind the row.
  const auto each_chunk = [&](const auto& f) {
    HEADRACE_UNROLL
    for (int h = 0; h < kHeldChunks; ++h) {
      const int64_t at = first + h * step;
      f(at, at < cols ? held[h] : Chunk<T, kSize>{});
    }
    for (int64_t begin = kHeldChunks * step; begin < rows.stride; begin += step) {
      const int64_t at = first + begin;
      f(at, at < cols ? load_chunk<T, kSize>(from + at) : Chunk<T, kSize>{});
    }
  };
  if (rows.by_unit) {
    each_chunk([&](int64_t at, const Chunk<T, kSize>& values) {
      const float own = chunk_top(values, 0.0f);
      const RowScale scale(warp_reduce<kQuantUnit / kSize>(own, Largest{}), rows.most());
      if (at >= rows.stride) return;
      put_chunk_codes(values, rows, scale, to + at);
      if (at % kQuantUnit == 0) scales[at / kQuantUnit * rows.scale_stride] = scale.scale;
    });
    return;
  }
  float top = 0.0f;
  each_chunk([&](int64_t, const Chunk<T, kSize>& values) { top = chunk_top(values, top); });
  const RowScale scale(block_reduce(top, Largest{}, partial), rows.most());
  each_chunk([&](int64_t at, const Chunk<T, kSize>& values) {
    if (at < rows.stride) put_chunk_codes(values, rows, scale, to + at);
  });
  if (threadIdx.x == 0) *scales = scale.scale;
}

}  // namespace headrace::cuda
