#pragma once

// What sm_90a adds, in PTX: barriers in shared memory that count bytes, tensor copies by the copy
// engine (TMA), asynchronous products of a warpgroup (wgmma.cuh), registers moved between
// warpgroups. Bodies exist where the compiler targets sm_90a, and in the emulation.

#include "cuda/device/named_barrier.cuh"
#include "cuda/device/platform.cuh"

#if defined(HEADRACE_HOPPER)

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

inline uint32_t shared_word(const void* shared) { return emulation::shared_address_of(shared); }
inline void barrier_init(uint64_t* barrier, uint32_t arrivals, HEADRACE_SITE) {
  emulation::barrier_init(barrier, arrivals, site);
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint64_t* barrier, HEADRACE_SITE) {
  emulation::barrier_arrive(barrier, 0, site);
}
inline void barrier_expect_bytes(uint64_t* barrier, uint32_t bytes, HEADRACE_SITE) {
  emulation::barrier_arrive(barrier, bytes, site);
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity, HEADRACE_SITE) {
  emulation::barrier_wait(barrier, parity, site);
}
inline void copy_box(void* shared, const void* map, int32_t column, int32_t row, uint64_t* barrier,
                     HEADRACE_SITE) {
  emulation::copy_box(shared, *static_cast<const emulation::TensorMap*>(map), column, row, barrier,
                      emulation::own_block(), site);
}
inline void copy_unit(void* shared, const void* map, int32_t tile, int32_t unit, uint64_t* barrier,
                      HEADRACE_SITE) {
  emulation::copy_unit(shared, *static_cast<const emulation::TensorMap*>(map), tile, unit, barrier,
                       emulation::own_block(), site);
}
inline void copy_run(void* shared, const void* map, int32_t word, int32_t tile, uint64_t* barrier,
                     HEADRACE_SITE) {
  emulation::copy_run(shared, *static_cast<const emulation::TensorMap*>(map), word, tile, barrier,
                      site);
}
inline void prefetch_map(const void*) {}
inline void shared_writes_fence() {}
inline void products_fence(HEADRACE_SITE) { emulation::fence_products(site); }
inline void products_commit(HEADRACE_SITE) { emulation::commit_products(site); }
template <int kLeft>
inline void products_wait(HEADRACE_SITE) {
  emulation::wait_products(kLeft, site);
}
template <int kCount>
inline void hold_registers(float (&)[kCount]) {}
template <int kCount>
inline void hold_registers(uint32_t (&)[kCount]) {}
inline void finish_first(const float (&)[2], uint32_t&) {}
inline float read_behind(const float& value) { return value; }
template <int kRegisters>
inline void take_registers(HEADRACE_SITE) {
  emulation::change_registers(kRegisters, true, site);
}
template <int kRegisters>
inline void give_registers(HEADRACE_SITE) {
  emulation::change_registers(kRegisters, false, site);
}

#else

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

#if defined(HEADRACE_CUDA_DEBUG_BARRIERS)

/// Waits until the phase of this parity is over; a wait of seconds names its barrier and ends
/// the kernel.
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  constexpr uint64_t kLongest = 2'000'000'000;
  const uint64_t begin = nanoseconds();
  for (;;) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(shared_word(barrier)), "r"(parity)
        : "memory");
    if (done != 0) return;
    if (nanoseconds() - begin > kLongest) {
      printf(
          "block %u,%u,%u thread %u: parity %u of the barrier at byte %u of shared memory "
          "doesn't come (state %llx)\n",
          blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, parity, shared_word(barrier),
          static_cast<unsigned long long>(*barrier));
      __trap();
    }
  }
}

#else

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

#endif

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

/// Tiles of 16 rows, from `tile` on, and 128 bytes of each row, `unit`: of a map that
/// make_tile_map() made, as copy_box() does.
__device__ inline void copy_unit(void* shared, const void* map, int32_t tile, int32_t unit,
                                 uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %3, %4, %5}], [%2];" ::"r"(shared_word(shared)),
      "l"(map), "r"(shared_word(barrier)), "r"(0), "r"(unit), "r"(tile)
      : "memory");
}

/// Words of some tiles, from `tile` on: of a map that make_run_map() made, as copy_box() does, as
/// they lie there.
__device__ inline void copy_run(void* shared, const void* map, int32_t word, int32_t tile,
                                uint64_t* barrier) {
  copy_box(shared, map, word, tile, barrier);
}

__device__ inline void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Behind it, what this thread has written to shared memory is seen by products and the copy engine
/// that it, or who it synchronizes with, starts.
__device__ inline void shared_writes_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Ahead of the first product, and of those behind a wait.
__device__ inline void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

/// Behind a wait: no use of these accumulators moves ahead of it. Before one: what gives them their
/// values isn't put off until later.
template <int kCount>
__device__ inline void hold_registers(float (&registers)[kCount]) {
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

/// Likewise of operands.
template <int kCount>
__device__ inline void hold_registers(uint32_t (&registers)[kCount]) {
  HEADRACE_UNROLL
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

/// Keeps ptxas, too, from starting a wait behind it before these values are there: a store to
/// shared memory depends on them. It is made for no numbers that arithmetic gives.
__device__ inline void finish_first(const float (&values)[2], uint32_t& never_written) {
  asm volatile(
      "{\n"
      ".reg .pred store;\n"
      ".reg .b32 both;\n"
      "and.b32 both, %0, %1;\n"
      "setp.eq.u32 store, both, 0xffffffff;\n"
      "@store st.shared.u32 [%2], both;\n"
      "}" ::"r"(__float_as_uint(values[0])),
      "r"(__float_as_uint(values[1])), "r"(shared_word(&never_written))
      : "memory");
}

/// Reads shared memory, and not before the products and arrivals ahead of it have been issued: what
/// depends on the value isn't put between them.
__device__ inline float read_behind(const float& value) {
  float out;
  asm volatile("ld.volatile.shared.f32 %0, [%1];"
               : "=f"(out)
               : "r"(shared_word(&value))
               : "memory");
  return out;
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#endif

/// Barriers of a ring of stages in shared memory: one thread fills them in turn, and fills each
/// again once all who read it have freed it. Phase n of a stage is its n-th filling.
template <int kStages>
struct StagePipe {
  uint64_t full[kStages];   ///< one arrival: that of the copies' bytes
  uint64_t empty[kStages];  ///< arrivals of those who read

  /// By one thread, ahead of a barrier of all who use it. `readers`: arrivals that free a stage.
  __device__ void init(uint32_t readers) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], readers);
    }
    barrier_init_fence();
  }
};

}  // namespace headrace::cuda

#endif
