#include "cuda/kernels/ranks/all_reduce.h"

#include "cuda/kernels/ranks/collect.cuh"
#include "cuda/kernels/ranks/sum_of_ranks.cuh"

namespace headrace::cuda {
namespace {

/// Elements [first, end) of the sum, into `out` or, where that is null, into this rank's piece of
/// the next exchange. `first` is a multiple of a vector; `vectors`: of `out`.
template <class T>
__global__ void sum_ranks_kernel(const __grid_constant__ RankLinks links, int64_t first,
                                 int64_t end, T* out, bool vectors) {
  __shared__ uint32_t is_last;
  wait_for_previous();
  const uint32_t exchange = exchange_number(links);
  meet_ranks(links, exchange);
  start_next();
  T* to = out == nullptr ? reinterpret_cast<T*>(piece_of(links, links.rank, exchange + 1)) : out;
  constexpr int kSize = Vector<T>::kSize;
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kSize;
  for (int64_t at = first + thread * kSize; at < end; at += step) {
    const Vector<T> sum = sum_of_ranks<T>(links, exchange, at);
    if (vectors && at + kSize <= end) {
      store_vector(to + at, sum);
      continue;
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kSize; ++i) {
      if (at + i < end) to[at + i] = sum.at[i];
    }
  }
  if (out == nullptr) peers_fence();
  end_exchange(links, exchange, &is_last);
}

template <class T>
void sum_ranks(const RankLinks& links, int64_t first, int64_t end, T* out, Stream stream) {
  const bool vectors = (reinterpret_cast<uintptr_t>(out) & 15u) == 0;
  const LaunchShape shape{
      .grid = {exchange_blocks(links, divide_up<int64_t>(end - first, Vector<T>::kSize))},
      .threads = kExchangeThreads,
      .overlaps = true};
  launch("sum_ranks", sum_ranks_kernel<T>, shape, stream, links, first, end, out, vectors);
}

/// Of elements that fit into a piece.
template <class T>
void reduce_piece(const RankLinks& all, T* x, int64_t count, Stream stream) {
  const RankLinks links = place_parts(all, count * static_cast<int64_t>(sizeof(T)));
  put_part(links, x, count, 1, count, stream);
  bring_parts(links, stream);
  if (reads_all(links, count * static_cast<int64_t>(sizeof(T)))) {
    return sum_ranks(links, 0, count, x, stream);
  }
  const int64_t share =
      divide_up(divide_up<int64_t>(count, links.count), int64_t{Vector<T>::kSize}) *
      Vector<T>::kSize;
  Parts parts{.rows = 1, .in_place = true};
  for (int r = 0; r < kMostRanks; ++r) parts.begins[r + 1] = least(share * (r + 1), count);
  sum_ranks<T>(links, parts.begins[links.rank], parts.begins[links.rank + 1], nullptr, stream);
  collect_parts(links, parts, x, count, stream);
}

}  // namespace

void all_reduce(const AllReduceArgs& args, Stream stream) {
  const int64_t count = args.x.rows * args.x.cols;
  if (count == 0 || args.links.count == 1) return;
  HEADRACE_CHECK(args.x.stride == args.x.cols || args.x.rows == 1, args.x.stride);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    auto* const x = static_cast<T*>(args.x.data);
    const int64_t most = args.links.piece_bytes / static_cast<int64_t>(sizeof(T));
    for (int64_t done = 0; done < count; done += most) {
      reduce_piece(args.links, x + done, least(most, count - done), stream);
    }
  });
}

}  // namespace headrace::cuda
