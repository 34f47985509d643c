#pragma once

// The products of a warpgroup (sm_90a): c [64, n] f32 += a [64, 16] . b [n, 16]^T of 16-bit
// elements, or [64, 32] . [n, 32]^T of e4m3, whose sums have fewer bits than float32 (Hopper: about
// 14 below the largest product's exponent). Warp w of the four holds rows 16 w and following of c,
// each n / 8 pieces of [16, 8] as mma_16x8x16 has them (mma.cuh). Asynchronous: operands stay as
// they are, and c isn't read, until products_wait(). Operands in shared memory are tiles whose rows
// are 128 bytes, swizzled in groups of 8 rows, aligned to 1024 bytes.

#include "cuda/device/hopper.cuh"
#include "cuda/device/numbers.cuh"

#if defined(HEADRACE_HOPPER)

namespace headrace::cuda {

/// Of a tile whose rows are rows of the matrix and hold 64 k, or 128 e4m3. `k_bytes`: which 32
/// bytes of the rows the product takes.
__device__ inline uint64_t tile_descriptor(const void* tile, uint32_t k_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = 1024;
  const uint64_t address = (shared_word(tile) + k_bytes) & 0x3ffffu;
  return address >> 4 | uint64_t{1} << 16 | (kGroupBytes >> 4) << 32 | kSwizzle128;
}

/// A descriptor of what lies `bytes` behind it: adding leaves the other fields alone.
__device__ inline uint64_t behind(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

/// Of a tile whose rows are k, from its first row on, and hold 64 rows of the matrix each; the next
/// 64 lie `next_bytes` behind.
__device__ inline uint64_t transposed_descriptor(const void* tile, uint32_t next_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = 1024;
  const uint64_t address = shared_word(tile) & 0x3ffffu;
  return address >> 4 | uint64_t{next_bytes >> 4} << 16 | (kGroupBytes >> 4) << 32 | kSwizzle128;
}

#if defined(HEADRACE_CUDA_EMULATION)

template <class T>
float element_value(uint16_t bits) {
  return to_float(T{bits});
}

template <class T, int n>
inline void wgmma_64xk16(float (&c)[n / 2], uint64_t a, uint64_t b, bool keep, HEADRACE_SITE) {
  emulation::issue_product({c, n, nullptr, a, b, false, keep, &element_value<T>}, site);
}
template <class T, int n>
inline void wgmma_64xk16(float (&c)[n / 2], const uint32_t (&a)[4], uint64_t b, bool keep,
                         HEADRACE_SITE) {
  emulation::issue_product({c, n, a, 0, b, true, keep, &element_value<T>}, site);
}

template <class T, int n>
inline void wgmma_held_64xk16(float (&c)[n / 2], const uint32_t (&a)[4], uint64_t b, bool keep,
                              HEADRACE_SITE) {
  emulation::issue_product({c, n, a, 0, b, false, keep, &element_value<T>, true}, site);
}

template <int n>
inline void wgmma_64xk32(float (&c)[n / 2], uint64_t a, uint64_t b, bool keep, HEADRACE_SITE) {
  emulation::issue_product({c, n, nullptr, a, b, false, keep, nullptr}, site);
}

#else

/// Both from tile_descriptor(). Without `keep`, what c held counts as 0, whatever it is.
template <class T, int n>
__device__ inline void wgmma_64xk16(float (&c)[n / 2], uint64_t a, uint64_t b, bool keep);

/// `a`: a lane's registers, as mma_16x8x16 has them. `b`: from transposed_descriptor().
template <class T, int n>
__device__ inline void wgmma_64xk16(float (&c)[n / 2], const uint32_t (&a)[4], uint64_t b,
                                    bool keep);

/// Likewise with `b` from tile_descriptor(). The emulation sees to it that `a` stays as it is until
/// the wait: hold_registers() behind that keeps its registers from others.
template <class T, int n>
__device__ inline void wgmma_held_64xk16(float (&c)[n / 2], const uint32_t (&a)[4], uint64_t b,
                                         bool keep);

/// e4m3; both from tile_descriptor().
template <int n>
__device__ inline void wgmma_64xk32(float (&c)[n / 2], uint64_t a, uint64_t b, bool keep);

// Every accumulator is an operand of the instruction.
// clang-format off
#define HEADRACE_SUMS_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define HEADRACE_SUMS_8(i) HEADRACE_SUMS_4(i), HEADRACE_SUMS_4(i + 4)
#define HEADRACE_SUMS_16(i) HEADRACE_SUMS_8(i), HEADRACE_SUMS_8(i + 8)
#define HEADRACE_SUMS_32(i) HEADRACE_SUMS_16(i), HEADRACE_SUMS_16(i + 16)
#define HEADRACE_SUMS_64(i) HEADRACE_SUMS_32(i), HEADRACE_SUMS_32(i + 32)
#define HEADRACE_SUMS_48(i) HEADRACE_SUMS_32(i), HEADRACE_SUMS_16(i + 32)
#define HEADRACE_SUMS_96(i) HEADRACE_SUMS_64(i), HEADRACE_SUMS_32(i + 64)
#define HEADRACE_SUMS_112(i) HEADRACE_SUMS_96(i), HEADRACE_SUMS_16(i + 96)
#define HEADRACE_SUMS_128(i) HEADRACE_SUMS_64(i), HEADRACE_SUMS_64(i + 64)
#define HEADRACE_NAMES_4 "%0, %1, %2, %3"
#define HEADRACE_NAMES_8 HEADRACE_NAMES_4 ", %4, %5, %6, %7"
#define HEADRACE_NAMES_16 HEADRACE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define HEADRACE_NAMES_32 HEADRACE_NAMES_16 ", " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HEADRACE_NAMES_48 HEADRACE_NAMES_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define HEADRACE_NAMES_64 HEADRACE_NAMES_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HEADRACE_NAMES_96 HEADRACE_NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HEADRACE_NAMES_112 HEADRACE_NAMES_96 ", " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define HEADRACE_NAMES_128 HEADRACE_NAMES_112 ", " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// `sums` = n / 2 accumulators; behind them a, b and keep are operands x, y and z.
#define HEADRACE_WGMMA_SHARED(T, type, n, sums, x, y, z) \
  template <> \
  __device__ inline void wgmma_64xk16<T, n>(float (&c)[sums], uint64_t a, uint64_t b, bool keep) { \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #z ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" HEADRACE_NAMES_##sums "}, %" #x ", %" #y ", keep, 1, 1, 0, 0;\n}" \
                 : HEADRACE_SUMS_##sums(0) \
                 : "l"(a), "l"(b), "r"(static_cast<int>(keep))); \
  }
// a's are operands p, q, r and s, b is t and keep u. `transposed`: 1 if b's rows are k.
#define HEADRACE_WGMMA_REGISTERS(name, transposed, T, type, n, sums, p, q, r, s, t, u) \
  template <> \
  __device__ inline void name<T, n>(float (&c)[sums], const uint32_t (&a)[4], uint64_t b, \
                                    bool keep) { \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #u ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type \
                 " {" HEADRACE_NAMES_##sums "}, {%" #p ", %" #q ", %" #r ", %" #s "}, %" #t \
                 ", keep, 1, 1, " #transposed ";\n}" \
                 : HEADRACE_SUMS_##sums(0) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), \
                   "r"(static_cast<int>(keep))); \
  }

#define HEADRACE_WGMMA(T, type) \
  HEADRACE_WGMMA_SHARED(T, type, 8, 4, 4, 5, 6) \
  HEADRACE_WGMMA_SHARED(T, type, 16, 8, 8, 9, 10) \
  HEADRACE_WGMMA_SHARED(T, type, 32, 16, 16, 17, 18) \
  HEADRACE_WGMMA_SHARED(T, type, 64, 32, 32, 33, 34) \
  HEADRACE_WGMMA_SHARED(T, type, 96, 48, 48, 49, 50) \
  HEADRACE_WGMMA_SHARED(T, type, 128, 64, 64, 65, 66) \
  HEADRACE_WGMMA_SHARED(T, type, 192, 96, 96, 97, 98) \
  HEADRACE_WGMMA_SHARED(T, type, 224, 112, 112, 113, 114) \
  HEADRACE_WGMMA_SHARED(T, type, 256, 128, 128, 129, 130) \
  HEADRACE_WGMMA_REGISTERS(wgmma_64xk16, 1, T, type, 64, 32, 32, 33, 34, 35, 36, 37) \
  HEADRACE_WGMMA_REGISTERS(wgmma_64xk16, 1, T, type, 128, 64, 64, 65, 66, 67, 68, 69) \
  HEADRACE_WGMMA_REGISTERS(wgmma_64xk16, 1, T, type, 256, 128, 128, 129, 130, 131, 132, 133) \
  HEADRACE_WGMMA_REGISTERS(wgmma_held_64xk16, 0, T, type, 16, 8, 8, 9, 10, 11, 12, 13) \
  HEADRACE_WGMMA_REGISTERS(wgmma_held_64xk16, 0, T, type, 32, 16, 16, 17, 18, 19, 20, 21) \
  HEADRACE_WGMMA_REGISTERS(wgmma_held_64xk16, 0, T, type, 64, 32, 32, 33, 34, 35, 36, 37) \
  HEADRACE_WGMMA_REGISTERS(wgmma_held_64xk16, 0, T, type, 128, 64, 64, 65, 66, 67, 68, 69)
#define HEADRACE_WGMMA_E4M3(n, sums, x, y, z) \
  template <> \
  __device__ inline void wgmma_64xk32<n>(float (&c)[sums], uint64_t a, uint64_t b, bool keep) { \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" #z ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3" \
                 " {" HEADRACE_NAMES_##sums "}, %" #x ", %" #y ", keep, 1, 1;\n}" \
                 : HEADRACE_SUMS_##sums(0) \
                 : "l"(a), "l"(b), "r"(static_cast<int>(keep))); \
  }
HEADRACE_WGMMA_E4M3(8, 4, 4, 5, 6)
HEADRACE_WGMMA_E4M3(16, 8, 8, 9, 10)
HEADRACE_WGMMA_E4M3(32, 16, 16, 17, 18)
HEADRACE_WGMMA_E4M3(64, 32, 32, 33, 34)
HEADRACE_WGMMA_E4M3(128, 64, 64, 65, 66)
HEADRACE_WGMMA_E4M3(192, 96, 96, 97, 98)
HEADRACE_WGMMA(Bf16, "bf16")
HEADRACE_WGMMA(F16, "f16")
#undef HEADRACE_SUMS_4
#undef HEADRACE_SUMS_8
#undef HEADRACE_SUMS_16
#undef HEADRACE_SUMS_32
#undef HEADRACE_SUMS_48
#undef HEADRACE_SUMS_64
#undef HEADRACE_SUMS_96
#undef HEADRACE_SUMS_112
#undef HEADRACE_SUMS_128
#undef HEADRACE_NAMES_4
#undef HEADRACE_NAMES_8
#undef HEADRACE_NAMES_16
#undef HEADRACE_NAMES_32
#undef HEADRACE_NAMES_48
#undef HEADRACE_NAMES_64
#undef HEADRACE_NAMES_96
#undef HEADRACE_NAMES_112
#undef HEADRACE_NAMES_128
#undef HEADRACE_WGMMA_SHARED
#undef HEADRACE_WGMMA_REGISTERS
#undef HEADRACE_WGMMA_E4M3
#undef HEADRACE_WGMMA
// clang-format on

#endif

}  // namespace headrace::cuda

#endif
