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

/// A block a slice of a row.
__global__ void __launch_bounds__(kSampleThreads, 3)
    sample_scan_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.table.num_spread = 0;
  scan_slice(args, blockIdx.x, reinterpret_cast<ScanShared*>(shared_memory()));
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

/// Any number of blocks, for the draws that are spread: slices are added to their row's bins.
__global__ void __launch_bounds__(kSampleThreads, 2)
    sample_spread_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  for_each_spread_run(args, [&](int32_t r, int32_t first, int32_t end) {
    add_slices(args, r, first, end, shared);
  });
}

/// The same once more: slices are looked through for where the draw may end.
__global__ void __launch_bounds__(kSampleThreads, 1)
    sample_pick_kernel(const __grid_constant__ SampleWork args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  for_each_spread_run(args, [&](int32_t r, int32_t first, int32_t end) {
    pick_slices(args, r, first, end, shared);
  });
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
  const LaunchShape scan{.grid = {grid_size(slices)},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(ScanShared),
                         .overlaps = true};
  launch("sample_scan", sample_scan_kernel, scan, stream, work);
  const LaunchShape draw{.grid = {grid_size(args.num_rows)},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(SampleShared),
                         .overlaps = true};
  launch("sample_draw", sample_draw_kernel, draw, stream, work);
  if (!args.spreads) return;
  // Which rows they have to do with is only known on the device.
  LaunchShape spread = draw;
  spread.grid = {grid_size(least(slices, int64_t{kSpreadBlocks}))};
  launch("sample_spread", sample_spread_kernel, spread, stream, work);
  spread.grid = {grid_size(least(slices, int64_t{kPickBlocks}))};
  launch("sample_pick", sample_pick_kernel, spread, stream, work);
}

}  // namespace headrace::cuda
