#include "cuda/kernels/sample/sample.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/sample/sample_report.cuh"
#include "cuda/kernels/sample/sample_scan.cuh"
#include "cuda/kernels/sample/sample_spread.cuh"

namespace headrace::cuda {
namespace {

__device__ int32_t smallest_allowed(const RowReader& row, SampleShared* shared) {
  int32_t smallest = kMaxVocabulary;
  for (int32_t t = static_cast<int32_t>(threadIdx.x); t < row.vocab_size && smallest > t;
       t += kSampleThreads) {
    const bool allowed = row.allowed == nullptr || (row.allowed[t / 32] >> (t % 32) & 1u) != 0;
    if (allowed) smallest = t;
  }
  // The largest of the negated.
  smallest = -reduce_block(-smallest, Largest{}, shared);
  return smallest == kMaxVocabulary ? 0 : smallest;
}

/// Any number of blocks, which take the rows' slices in turn.
__global__ void __launch_bounds__(kSampleThreads, 3)
    sample_scan_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.table.num_spread = 0;
  auto* const shared = reinterpret_cast<ScanShared*>(shared_memory());
  const auto slices = static_cast<uint32_t>(args.table.slices);
  const uint32_t count = static_cast<uint32_t>(args.num_rows) * slices;
  const auto copy = [&](uint32_t i, float* stage) {
    if (i < count) {
      const int64_t row = args.rows[i / slices].logits_row;
      const float* const logits = args.logits + row * args.stride;
      const int32_t first = static_cast<int32_t>(i % slices) * kSliceSize;
      if (row >= 0 && is_whole(logits, first, args.vocab_size)) {
        SliceValues::copy(logits, first, stage);
      }
    }
    copy_async_commit();
  };
  copy(blockIdx.x, shared->stages[0]);
  int turn = 0;
  HEADRACE_NO_UNROLL
  for (uint32_t i = blockIdx.x; i < count; i += gridDim.x, turn ^= 1) {
    copy(i + gridDim.x, shared->stages[turn ^ 1]);
    copy_async_wait<kScanStages - 1>();
    if (args.rows[i / slices].logits_row < 0) continue;
    scan_slice(args, i, shared->stages[turn], shared);
    __syncthreads();
  }
}

/// A block a row, behind the scan.
__global__ void __launch_bounds__(kSampleThreads, 1)
    sample_draw_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  const SliceTable& table = args.table;
  const SampleRowArgs row = args.rows[blockIdx.x];
  if (row.logits_row < 0) return;
  const RowFound found = row_found(table.found + int64_t{blockIdx.x} * table.slices, table.slices);
  const RowReader processed = processed_row(args, row);
  int32_t token = row.forced_token;
  if (token < 0 && found.best == 0) {
    token = smallest_allowed(processed, shared);
  } else if (token < 0) {
    token = row.greedy ? token_of(found.best) : draw(processed, found, args, row, shared);
    if (token == kSpread) return;
  }
  finish_row(args, static_cast<int32_t>(blockIdx.x), found, token, shared);
}

/// Any number of blocks, for the draws that are spread: each slice is added to its row's bins.
__global__ void __launch_bounds__(kSampleThreads, 2)
    sample_spread_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  for_each_spread_slice(args, [&](int32_t r, int32_t slice) { add_slice(args, r, slice, shared); });
}

/// The same once more: each slice is looked through for where the draw may end.
__global__ void __launch_bounds__(kSampleThreads, 1)
    sample_pick_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  for_each_spread_slice(args,
                        [&](int32_t r, int32_t slice) { pick_slice(args, r, slice, shared); });
}

}  // namespace

size_t sample_workspace_bytes(int64_t num_rows, int32_t vocab_size) {
  return slice_table_bytes(num_rows, slices_of(vocab_size));
}

void sample(const SampleArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  HEADRACE_CHECK(
      args.vocab_size >= 1 && args.vocab_size <= kMaxVocabulary && args.vocab_size <= args.stride,
      args.vocab_size);
  HEADRACE_CHECK(args.max_logprobs >= 0 && args.max_logprobs <= kMaxDeviceLogprobs,
                 args.max_logprobs);
  HEADRACE_CHECK(args.workspace != nullptr);
  SampleWork work;
  static_cast<SampleArgs&>(work) = args;
  work.table = slice_table(args);
  const int64_t slices = args.num_rows * slices_of(args.vocab_size);
  const LaunchShape scan{.grid = {grid_size(least(slices, int64_t{kMostBlocks}))},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(ScanShared),
                         .overlaps = true};
  launch("sample_scan", sample_scan_kernel, scan, stream, work);
  const LaunchShape draw{.grid = {grid_size(args.num_rows)},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(SampleShared),
                         .overlaps = true};
  launch("sample_draw", sample_draw_kernel, draw, stream, work);
  // Which rows they have to do with is only known on the device; mostly there are none.
  LaunchShape spread = draw;
  spread.grid = scan.grid;
  launch("sample_spread", sample_spread_kernel, spread, stream, work);
  launch("sample_pick", sample_pick_kernel, spread, stream, work);
}

}  // namespace headrace::cuda
