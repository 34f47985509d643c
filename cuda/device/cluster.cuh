#pragma once

// Clusters of blocks on sm_90a: copies that land in the shared memory of several blocks, barriers
// of another block. Their kernels have no __shared__ variables, of which the emulation has one for
// all blocks of a cluster.

#include "cuda/device/hopper.cuh"

#if defined(HEADRACE_HOPPER)

namespace headrace::cuda {

#if defined(HEADRACE_CUDA_EMULATION)

inline uint32_t cluster_rank() { return emulation::cluster_rank(); }
inline void cluster_sync(HEADRACE_SITE) {
  emulation::cluster_arrive(site);
  emulation::cluster_wait(site);
}
inline void copy_box_to_cluster(void* shared, const void* map, int32_t column, int32_t row,
                                uint64_t* barrier, uint16_t blocks, HEADRACE_SITE) {
  emulation::copy_box(shared, *static_cast<const emulation::TensorMap*>(map), column, row, barrier,
                      blocks, site);
}
inline void copy_unit_to_cluster(void* shared, const void* map, int32_t tile, int32_t unit,
                                 uint64_t* barrier, uint16_t blocks, HEADRACE_SITE) {
  emulation::copy_unit(shared, *static_cast<const emulation::TensorMap*>(map), tile, unit, barrier,
                       blocks, site);
}
inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank, HEADRACE_SITE) {
  emulation::barrier_arrive_at(barrier, rank, 0, site);
}
inline float4 load_from_block(const float4* shared, uint32_t rank, HEADRACE_SITE) {
  float4 out;
  emulation::load_from_block(&out, shared, sizeof out, rank, site);
  return out;
}

#else

/// Of the block in its cluster.
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all blocks of the cluster.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// copy_box() to the same place in every block whose bit of `blocks` is set; the bytes count
/// towards the same barrier of each.
__device__ inline void copy_box_to_cluster(void* shared, const void* map, int32_t column,
                                           int32_t row, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_word(shared)),
      "l"(map), "r"(shared_word(barrier)), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}

/// copy_unit(), likewise.
__device__ inline void copy_unit_to_cluster(void* shared, const void* map, int32_t tile,
                                            int32_t unit, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %3, %4, %5}], [%2], %6;" ::"r"(shared_word(shared)),
      "l"(map), "r"(shared_word(barrier)), "r"(0), "r"(unit), "r"(tile), "h"(blocks)
      : "memory");
}

/// Arrives at the barrier of block `rank` that lies where `barrier` does in this one. Says that
/// reads are over; what this thread wrote may be seen later (a release for the cluster waits for
/// all memory).
__device__ inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(shared_word(barrier)),
      "r"(rank)
      : "memory");
}

/// What lies in block `rank` where `shared` does in this one. Between two cluster_sync(), behind
/// the writing and ahead of the block's end.
__device__ inline float4 load_from_block(const float4* shared, uint32_t rank) {
  float4 out;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}"
      : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
      : "r"(shared_word(shared)), "r"(rank)
      : "memory");
  return out;
}

#endif

/// In every block of a cluster of kCluster, each of which copies into the stage; by a warp whose
/// lanes have read all of it.
template <int kCluster, int kStages>
__device__ void free_stage(StagePipe<kStages>* pipe, uint32_t stage) {
  __syncwarp();
  if constexpr (kCluster == 1) {
    if (lane_id() == 0) barrier_arrive(&pipe->empty[stage]);
  } else {
    if (lane_id() < kCluster) {
      barrier_arrive_at(&pipe->empty[stage], static_cast<uint32_t>(lane_id()));
    }
  }
}

}  // namespace headrace::cuda

#endif
