#include "cuda/kernels/ranks/reduce_add_norm.h"

#include "cuda/kernels/ranks/sum_of_ranks.cuh"
#include "cuda/kernels/rows/rms_norm_row.cuh"

namespace headrace::cuda {
namespace {

/// What all ranks have put for a row that begins with element `first`.
template <class T>
struct DeltaOfRanks {
  const RankLinks& links;
  uint32_t exchange;
  int64_t first;

  template <int kSize>
  __device__ Chunk<T, kSize> load(int64_t at) const {
    const Vector<T> sum = sum_of_ranks_in_turn<T>(links, exchange, first + at);
    Chunk<T, kSize> out;
    for (int i = 0; i < kSize; ++i) out.at[i] = sum.at[i];
    return out;
  }
  __device__ bool empty() const { return false; }
};

template <class T, class W, class Codes>
__global__ void __launch_bounds__(kMaxNormThreads)
    reduce_add_norm_kernel(const __grid_constant__ RankLinks links, T* x, int64_t x_stride,
                           NormWeight<W> weight, T* out, int64_t out_stride, int64_t cols,
                           float eps, Codes codes) {
  __shared__ float partial[kWarp];
  __shared__ uint32_t is_last;
  wait_for_previous();
  const uint32_t exchange = exchange_number(links);
  meet_ranks(links, exchange);
  start_next();
  rms_norm_row<T, Vector<T>::kSize>(x + blockIdx.x * x_stride,
                                    DeltaOfRanks<T>{links, exchange, blockIdx.x * cols}, weight,
                                    out + blockIdx.x * out_stride, cols, eps, partial, codes);
  end_exchange(links, exchange, &is_last);
}

}  // namespace

bool takes_reduce_add_norm(const ReduceAddNormArgs& args) {
  const RmsNormArgs& norm = args.norm;
  const auto element = static_cast<int64_t>(dtype_size(norm.dtype));
  const auto vectors = [&](const void* data, int64_t stride) {
    return (reinterpret_cast<uintptr_t>(data) & 15u) == 0 && stride * element % 16 == 0;
  };
  const int64_t bytes = norm.x.rows * norm.x.cols * element;
  return norm.x.rows >= 1 && norm.x.rows <= args.links.most_blocks &&
         bytes <= args.links.piece_bytes && reads_all(args.links, bytes) &&
         vectors(norm.x.data, norm.x.stride) && vectors(norm.out.data, norm.out.stride) &&
         vectors(norm.weight, norm.x.cols);
}

void reduce_add_norm(const ReduceAddNormArgs& args, Stream stream) {
  const RmsNormArgs& norm = args.norm;
  const int64_t rows = norm.x.rows, cols = norm.x.cols;
  HEADRACE_CHECK(takes_reduce_add_norm(args) && norm.delta.rows == rows && norm.delta.cols == cols,
                 rows, " x ", cols);
  with_element(norm.dtype, [&](auto element) {
    using T = decltype(element);
    const RankLinks links = place_parts(args.links, rows * cols * static_cast<int64_t>(sizeof(T)));
    put_part(links, static_cast<const T*>(norm.delta.data), norm.delta.stride, rows, cols, stream);
    bring_parts(links, stream);
    static_assert(kMostRanks <= kWarp);  // meet_ranks() takes a thread for each rank
    const LaunchShape shape{.grid = {grid_size(rows)},
                            .threads = norm_threads(cols, Vector<T>::kSize),
                            .overlaps = true};
    with_norm_weight<T>(norm, [&](const auto& weight) {
      with_norm_codes(norm, [&](const auto& codes) {
        using W = std::decay_t<decltype(weight)>::Element;
        launch("reduce_add_norm", reduce_add_norm_kernel<T, W, std::decay_t<decltype(codes)>>,
               shape, stream, links, static_cast<T*>(norm.x.data), norm.x.stride, weight,
               static_cast<T*>(norm.out.data), norm.out.stride, cols, norm.eps, codes);
      });
    });
  });
}

}  // namespace headrace::cuda
