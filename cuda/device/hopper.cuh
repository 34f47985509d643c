#pragma once

// What sm_90a adds, in PTX: barriers in shared memory that count bytes, tensor copies by the copy
// engine (TMA), asynchronous products of a warpgroup (wgmma), registers moved between warpgroups.
// Bodies exist only where the compiler targets sm_90a; the emulation has none of it.

#include "cuda/device/platform.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace headrace::cuda {

__device__ inline uint32_t shared_word(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// `arrivals` complete a phase, and the bytes that were announced.
__device__ inline void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_word(barrier)), "r"(arrivals)
               : "memory");
}

/// Makes initialised barriers visible to the copy engine.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_word(barrier)) : "memory");
}

__device__ inline void barrier_expect_bytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_word(barrier)),
               "r"(bytes)
               : "memory");
}

/// Waits until the phase of this parity is over.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_word(barrier)),
      "r"(parity)
      : "memory");
}

/// A box of a matrix, from column `column` and row `row` on, to shared memory; its bytes count
/// towards the barrier. `map`: a CUtensorMap in the kernel's parameters.
__device__ inline void copy_box(void* shared, const void* map, int32_t column, int32_t row,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_word(shared)),
      "l"(map), "r"(shared_word(barrier)), "r"(column), "r"(row)
      : "memory");
}

__device__ inline void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Of a tile in shared memory as products take it: rows of 128 bytes (64 k), swizzled in groups of
/// 8 rows, aligned to 1024 bytes. `k_bytes`: which 32 bytes of the rows.
__device__ inline uint64_t tile_descriptor(const void* tile, uint32_t k_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = 1024;
  const uint64_t address = (shared_word(tile) + k_bytes) & 0x3ffffu;
  return address >> 4 | uint64_t{1} << 16 | (kGroupBytes >> 4) << 32 | kSwizzle128;
}

__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// A barrier of some of the block's warps.
__device__ inline void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace headrace::cuda

#endif
