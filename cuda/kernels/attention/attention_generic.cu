#include "cuda/kernels/attention/attention_merge.cuh"
#include "cuda/kernels/attention/attention_scalar.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = kScalarThreads;
constexpr int kMaxHeadDim = kScalarMaxHeadDim;
constexpr int kColumns = kScalarColumns;

/// The piece's key or value at a position, as something with numbers.
template <class T, class Cache>
__device__ auto kv_row(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                       int32_t position, const Cache* cache, const uint32_t* scales) {
  const int32_t size = task.layout.block_size, d = task.layout.head_dim;
  const int32_t* table = task.block_tables + piece.item.sequence * task.table_stride;
  const int64_t slot = int64_t{table[position / size]} * size + position % size;
  const int64_t row = task.layout.row(slot, piece.kv_head);
  if constexpr (CodeTraits<Cache>::kCodes) {
    const int32_t bytes = CodeTraits<Cache>::kPerByte == 2 ? divide_up(d, 32) * 16 : d;
    return CodeRow<Cache>{cache + row * bytes,
                          kv_scale<Cache>(scales[task.layout.scale(slot, piece.kv_head)])};
  } else {
    return cache + row * d;
  }
}

template <class T, class Cache>
__device__ void attend_row(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                           int32_t m, float* query, float* scores, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x);
  const AttentionShape& shape = task.shape;
  const int32_t d = shape.head_dim;
  const int64_t row = piece.item.row + piece.token(shape, m);
  const int64_t column = int64_t{piece.head(shape, m)} * d;
  for (int32_t j = thread; j < d; j += kThreads) {
    query[j] = to_float(task.q[row * task.q_stride + column + j]);
  }
  __syncthreads();
  const int32_t position = piece.item.position + piece.token(shape, m);
  const KeyRange keys = row_keys(piece.item, shape, position);
  RowSums total;
  for (int32_t split = piece.item.first_split; split < piece.item.end_split; ++split) {
    RowSums sums;
    attend_keys(
        query, shape.head_dim, task.scale, task.cap,
        {greatest(keys.first, split * kSplitKeys), least(keys.end, (split + 1) * kSplitKeys)},
        [&](int32_t key) { return kv_row(task, piece, key, task.keys, task.key_scales); },
        [&](int32_t key) { return kv_row(task, piece, key, task.values, task.value_scales); }, sums,
        scores, scratch);
    const Fold fold(total.max, sums.max);
    total.max = fold.max;
    total.total = fold(total.total, sums.total);
    for (int c = 0; c < kColumns; ++c) total.at[c] = fold(total.at[c], sums.at[c]);
  }
  float* partial = nullptr;
  if (piece.item.partial >= 0) {
    partial = partial_of(task, piece) + m * partial_stride(d);
    if (thread == 0) {
      *reinterpret_cast<float4*>(partial + d) = {total.max, 0.0f, 0.0f, 0.0f};
      *reinterpret_cast<float4*>(partial + d + 4) = {total.total, 0.0f, 0.0f, 0.0f};
    }
  }
  const float factor = output_factor(task, piece, m, total.total, total.max);
  for (int c = 0; c < kColumns; ++c) {
    const int32_t j = thread + c * kThreads;
    if (j >= d) continue;
    if (partial != nullptr) {
      partial[j] = total.at[c];
    } else {
      task.out[row * task.out_stride + column + j] = from_float<T>(total.at[c] * factor);
    }
  }
  __syncthreads();
}

template <class T, class Cache>
__global__ void __launch_bounds__(kThreads, 4)
    attention_generic_kernel(AttentionTask<T, Cache> task, int32_t rows) {
  __shared__ float query[kMaxHeadDim];
  __shared__ float scores[kTileKeys];
  __shared__ float scratch[kThreads / kWarp];
  __shared__ uint32_t is_last;
  start_next();
  wait_for_previous();
  for_each_piece(task, [&](const AttentionPiece& piece) {
    for (int32_t m = 0; m < rows; ++m) {
      if (piece.exists(task.shape, m)) attend_row(task, piece, m, query, scores, scratch);
    }
    if (piece.item.partial >= 0) merge_if_last(task, piece, 1, &is_last);
  });
}

}  // namespace

void attention_generic(const AttentionArgs& args, Stream stream) {
  const int32_t d = args.shape.head_dim;
  HEADRACE_CHECK(d % 4 == 0 && d <= kMaxHeadDim, d);
  const auto run = [&](const WorkList<AttentionItem>& list, int32_t rows) {
    if (list.expected <= 0) return;
    const LaunchShape shape{
        .grid = {work_grid(list.expected, args.shape, args.multiprocessors, 16)},
        .threads = kThreads,
        .overlaps = true};
    with_element(args.dtype, [&](auto element) {
      const auto attend = [&](auto cached) {
        using T = decltype(element);
        using Cache = decltype(cached);
        launch("attention_generic", attention_generic_kernel<T, Cache>, shape, stream,
               attention_task<T, Cache>(args, list), rows);
      };
      if (kv_has_scales(args.cache_dtype)) {
        with_codes(args.cache_dtype, attend);
      } else {
        with_element(args.cache_dtype, attend);
      }
    });
  };
  run(args.short_items, kShortRows);
  run(args.long_items, args.shape.long_rows);
}

}  // namespace headrace::cuda
