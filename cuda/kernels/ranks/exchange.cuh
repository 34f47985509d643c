#pragma once

// What the kernels of an exchange between ranks share: the first one puts a rank's part into its
// piece, the last one meets the other ranks and reads theirs. Where a carrier brings the parts, it
// does so between the two, and nobody meets.

#include "cuda/device/last_block.cuh"
#include "cuda/device/peers.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

inline constexpr unsigned kExchangeThreads = 512;

inline unsigned exchange_blocks(const RankLinks& links, int64_t work) {
  return grid_size(least(greatest<int64_t>(divide_up<int64_t>(work, kExchangeThreads), 1),
                         int64_t{links.most_blocks}));
}

/// The number of the exchange that this kernel is part of.
__device__ inline uint32_t exchange_number(const RankLinks& links) {
  if (links.carrier != nullptr) return 0;
  return *static_cast<volatile uint32_t*>(links.exchanges);
}

__device__ inline std::byte* piece_of(const RankLinks& links, int rank, uint32_t exchange) {
  return links.pieces[rank] + (exchange & 1u) * links.piece_bytes;
}

/// By all threads of all blocks, once a kernel, behind the kernel that has put this rank's part:
/// returns when every rank has put its own, which are there then, or nobody waits any more.
#if defined(HEADRACE_CUDA_EMULATION)
inline void meet_ranks(const RankLinks& links, uint32_t exchange, HEADRACE_SITE) {
#else
__device__ inline void meet_ranks(const RankLinks& links, uint32_t exchange) {
#endif
  if (links.carrier != nullptr) return;
  const auto peer = static_cast<int>(threadIdx.x);
  if (peer < links.count) {
    if (blockIdx.x == 0) tell_peer(links.begun[peer] + links.rank, exchange + 1);
    uint32_t* const word = links.begun[links.rank] + peer;
#if defined(HEADRACE_CUDA_EMULATION)
    const bool over = await_peer(word, exchange + 1, links.stop, kLongestWaitSeconds, site);
#else
    const bool over = await_peer(word, exchange + 1, links.stop, kLongestWaitSeconds);
#endif
    if (!over) tell_peer(links.stop, kNoAnswer);
  }
  __syncthreads();
}

/// By all threads, once they have read the other ranks' pieces.
__device__ inline void end_exchange(const RankLinks& links, uint32_t exchange, uint32_t* shared) {
  if (links.carrier != nullptr) return;
  if (!is_last_block(links.counter, 1, static_cast<int32_t>(gridDim.x), shared)) return;
  if (threadIdx.x == 0) *static_cast<volatile uint32_t*>(links.exchanges) = exchange + 1;
}

/// The links of an exchange of parts of up to `bytes`.
inline RankLinks place_parts(const RankLinks& links, int64_t bytes) {
  RankLinks out = links;
  if (links.carrier == nullptr) return out;
  for (int r = 0; r < links.count; ++r) {
    out.pieces[r] = links.pieces[0] + r * (divide_up<int64_t>(bytes, 16) * 16);
  }
  return out;
}

/// Between the kernels of an exchange: what a carrier has to do. `placed`: place_parts().
inline void bring_parts(const RankLinks& placed, Stream stream) {
  if (placed.carrier == nullptr) return;
  placed.carrier->all_gather(placed.pieces[0], placed.pieces[1] - placed.pieces[0], stream);
}

/// rows x cols elements into this rank's piece, one row behind the other. Every exchange begins
/// with it. REQUIRES: they fit.
template <class T>
__global__ void put_part_kernel(const __grid_constant__ RankLinks links, const T* from,
                                int64_t stride, int64_t rows, int64_t cols, bool vectors) {
  start_next();
  wait_for_previous();
  T* const to = reinterpret_cast<T*>(piece_of(links, links.rank, exchange_number(links)));
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  constexpr int kSize = Vector<T>::kSize;
  const int64_t of_row = vectors ? cols / kSize : cols;
  for (int64_t i = first; i < rows * of_row; i += step) {
    const int64_t row = i / of_row, at = i - row * of_row;
    if (vectors) {
      store_vector(to + i * kSize, load_vector(from + row * stride + at * kSize));
    } else {
      to[i] = from[row * stride + at];
    }
  }
  peers_fence();
}

template <class T>
void put_part(const RankLinks& links, const T* from, int64_t stride, int64_t rows, int64_t cols,
              Stream stream) {
  const bool vectors = is_vectorizable(from, stride, cols);
  const LaunchShape shape{
      .grid = {exchange_blocks(links, rows * cols / (vectors ? Vector<T>::kSize : 1))},
      .threads = kExchangeThreads,
      .overlaps = true};
  launch("put_part", put_part_kernel<T>, shape, stream, links, from, stride, rows, cols, vectors);
}

}  // namespace headrace::cuda
