#pragma once

// The end of an exchange that copies: every rank's part, side by side.

#include "cuda/kernels/ranks/exchange.cuh"

namespace headrace::cuda {

/// Rank r has columns [begins[r], begins[r + 1]) of `rows` rows.
struct Parts {
  int64_t rows = 0;
  int64_t begins[kMostRanks + 1] = {};
  bool in_place = false;  ///< its part begins at element begins[r] of its piece, and not at 0
};

/// A launch's only purpose may be to meet: `out` null.
template <class T>
__global__ void collect_parts_kernel(const __grid_constant__ RankLinks links,
                                     const __grid_constant__ Parts parts, T* out, int64_t stride,
                                     bool vectors) {
  __shared__ uint32_t is_last;
  wait_for_previous();
  const uint32_t exchange = exchange_number(links);
  meet_ranks(links, exchange);
  start_next();
  const int size = vectors ? Vector<T>::kSize : 1;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int rank = 0; rank < links.count && out != nullptr; ++rank) {
    const int64_t begin = parts.begins[rank], cols = parts.begins[rank + 1] - begin;
    const int64_t of_row = cols / size;
    const T* const part =
        reinterpret_cast<const T*>(piece_of(links, rank, exchange)) + (parts.in_place ? begin : 0);
    for (int64_t i = thread; i < parts.rows * of_row; i += step) {
      const int64_t row = i / of_row, at = (i - row * of_row) * size;
      T* const to = out + row * stride + begin + at;
      if (vectors) {
        *reinterpret_cast<uint4*>(to) = load_from_peer(part + row * cols + at);
      } else {
        *to = load_one_from_peer(part + row * cols + at);
      }
    }
  }
  end_exchange(links, exchange, &is_last);
}

template <class T>
void collect_parts(const RankLinks& links, const Parts& parts, T* out, int64_t stride,
                   Stream stream) {
  constexpr int64_t kSize = Vector<T>::kSize;
  bool vectors = (reinterpret_cast<uintptr_t>(out) & 15u) == 0 && stride % kSize == 0;
  for (const int64_t begin : parts.begins) vectors = vectors && begin % kSize == 0;
  const int64_t elements = out == nullptr ? 0 : parts.rows * parts.begins[links.count];
  const LaunchShape shape{.grid = {exchange_blocks(links, elements / (vectors ? kSize : 1))},
                          .threads = kExchangeThreads,
                          .overlaps = true};
  launch("collect_parts", collect_parts_kernel<T>, shape, stream, links, parts, out, stride,
         vectors);
}

}  // namespace headrace::cuda
