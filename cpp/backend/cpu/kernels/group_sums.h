#pragma once

// A tile's float sums over groups of k, each group's with a factor for every column; for the
// kernels of weights in groups. `Scales` has F32 operator()(int v): the scales of a group's vector
// v.

#include "backend/cpu/kernels/panel_epilogue.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kRegisters = kLanes == 16 ? 32 : 16;

/// Sums [R][kPanelCols] that lie in memory between groups.
template <int R, class Scales>
struct StoredSums {
  float* memory;
  bool is_fresh;
  Scales scales{};

  StoredSums(float* sums, bool fresh) : memory(sums), is_fresh(fresh) {}
  HEADRACE_SIMD_INLINE void begin_group(const Scales& of_group) { scales = of_group; }
  HEADRACE_SIMD_INLINE F32 scale(int v) const { return scales(v); }
  HEADRACE_SIMD_INLINE void add(int r, int v, F32 sum, F32 factor) {
    float* to = memory + (r * kVectors + v) * kLanes;
    store(to, fma(sum, factor, is_fresh ? zero() : load(to)));
  }
  HEADRACE_SIMD_INLINE void end_group() { is_fresh = false; }
  HEADRACE_SIMD_INLINE void finish() {}
};

/// The same in registers. So are a group's scales, which are read before its codes: memory is read
/// in order, as those who read it ahead expect.
template <int R, class Scales>
struct KeptSums {
  float* memory;
  F32 sums[R][kVectors], scales[kVectors];

  HEADRACE_SIMD_INLINE KeptSums(float* at, bool fresh) : memory(at) {
    for_each([&](int r, int v, float* from) { sums[r][v] = fresh ? zero() : load(from); });
  }
  HEADRACE_SIMD_INLINE void begin_group(const Scales& of_group) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) scales[v] = of_group(v);
  }
  HEADRACE_SIMD_INLINE F32 scale(int v) const { return scales[v]; }
  HEADRACE_SIMD_INLINE void add(int r, int v, F32 sum, F32 factor) {
    sums[r][v] = fma(sum, factor, sums[r][v]);
  }
  HEADRACE_SIMD_INLINE void end_group() {}
  HEADRACE_SIMD_INLINE void finish() {
    for_each([&](int r, int v, float* to) { store(to, sums[r][v]); });
  }

 private:
  template <class Visit>
  HEADRACE_SIMD_INLINE void for_each(const Visit& visit) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) visit(r, v, memory + (r * kVectors + v) * kLanes);
    }
  }
};

template <bool kCondition, class Yes, class No>
struct Choose {
  using Type = Yes;
};
template <class Yes, class No>
struct Choose<false, Yes, No> {
  using Type = No;
};

/// Kept where `kWanted` registers are there: all kinds of sums, scales, and what else takes some.
template <int kWanted, int R, class Scales>
using GroupSums =
    typename Choose<kWanted <= kRegisters, KeptSums<R, Scales>, StoredSums<R, Scales>>::Type;

}  // namespace
}  // namespace headrace::HEADRACE_ISA
