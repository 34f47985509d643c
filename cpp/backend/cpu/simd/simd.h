#pragma once

// The vocabulary kernels are written in: vectors of float32, of the width of the ISA that the file
// is being compiled for. Every kernel file is compiled once per ISA, with HEADRACE_ISA set to the
// ISA's name (cpp/backend/cpu/CMakeLists.txt), and puts all it defines into
//
//   namespace headrace::HEADRACE_ISA { namespace { ... } }
//
// but for its table of function pointers. Such files include only this header, the headers of the
// kernel tables and the C library's types: an inline function of anyone else's would be compiled
// with this ISA's instructions, and the linker might keep that copy for everyone.
//
//   kLanes                       floats in a vector, a power of two
//   F32                          a vector
//   zero() set1(x)
//   load(p) store(p, v)          unaligned
//   load_part(p, n)              the first n lanes (0..kLanes), others 0; reads nothing beyond
//   store_part(p, v, n)          writes nothing beyond
//   add sub mul div max min      max(a, b) and min(a, b) are b where either is NaN
//   fma(a, b, c)                 a * b + c; rounded once, but on the baseline ISA twice
//   sqrt(v)
//   reduce_add(v) reduce_max(v)  over the lanes, as a fixed tree: halves, quarters, ...
//   transpose(rows)              of kLanes vectors: lane j of vector i goes to lane i of vector j
//   greater_mask(a, b)           bit i: a[i] > b[i]
//   exp(v)                       within 2 ulp for v in [-87.33, 88.72]; 0 below (-inf too), inf
//                                above, NaN for NaN
//   exp2(v)                      2^v within 2 ulp for v in [-126, 127]; 0 below -150, NaN for NaN
//   tanh(v)                      within 3 ulp, NaN for NaN
//   load_bf16(p) load_f16(p)     kLanes 16-bit numbers, widened exactly
//   load_f8_part(p)              kLanes float8_e4m3 numbers / 256, exactly; its NaN as 480 / 256
//   store_bf16(p, v) store_f16   rounded to nearest, ties to even
//   load_bf16_even(p)            of 2 * kLanes numbers those at even places
//   load_bf16_odd(p)             ... at odd places
//   prefetch(p)                  into the second-level cache
//   touch_line(p)                before a load takes a whole line of a stream: of lines that are
//                                asked for once, too little is read ahead
// AVX-512 with bf16 only (HEADRACE_HAS_BF16_DOT):
//   narrow_pairs(low, high)      2 * kLanes numbers rounded to bf16; subnormal ones become 0
//   interleave_pairs(low, high)  the same, low[i] and high[i] side by side
//   dot_bf16(a, b, c)            c + a.odd * b.odd + a.even * b.even per lane
//   keep_halves(v, halves)       v with the same 32-bit mask over every pair
//   store_bf16_normal(p, v)      store_bf16, but subnormal numbers become 0

#define HEADRACE_SIMD_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "backend/cpu/simd/avx512.h"
#elif defined(__AVX2__)
#include "backend/cpu/simd/avx2.h"
#else
#include "backend/cpu/simd/baseline.h"
#endif

#include "backend/cpu/simd/math.h"
