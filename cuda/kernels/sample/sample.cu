#include "cuda/kernels/sample/sample.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/sample/sample_report.cuh"
#include "cuda/kernels/sample/sample_scan.cuh"

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
__global__ void __launch_bounds__(kSampleThreads, 3) sample_scan_kernel(SampleArgs args) {
  start_next();
  wait_for_previous();
  const SliceTable table = slice_table(args);
  const auto slices = static_cast<unsigned>(table.slices);
  const SampleRowArgs& row = args.rows[blockIdx.x / slices];
  if (row.logits_row < 0) return;
  const auto first = static_cast<int32_t>(blockIdx.x % slices) * kSliceSize;
  scan_slice(args, row, first, table.found + blockIdx.x,
             table.lists + int64_t{blockIdx.x} * kSliceList,
             reinterpret_cast<ScanShared*>(shared_memory()));
}

/// A block a row, behind the scan.
__global__ void __launch_bounds__(kSampleThreads, 1) sample_draw_kernel(SampleArgs args) {
  start_next();
  wait_for_previous();
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  const SliceTable table = slice_table(args);
  const SampleRowArgs row = args.rows[blockIdx.x];
  if (row.logits_row < 0) return;
  float* logits = args.logits + row.logits_row * args.stride;
  const RowFound found = row_found(table.found + int64_t{blockIdx.x} * table.slices, table.slices);
  const RowReader processed{logits, row.allowed, args.vocab_size,
                            row.greedy ? 1.0f : row.temperature};
  SampleRowResult result{.finite = found.finite};
  if (row.forced_token >= 0) {
    result.token = row.forced_token;
  } else if (found.best == 0) {
    result.token = smallest_allowed(processed, shared);
  } else {
    result.token = row.greedy ? token_of(found.best) : draw(processed, found, args, row, shared);
  }
  const ReadPoint read = read_point(row);
  if (read != ReadPoint::kNowhere) {
    RowReader reported = processed;
    const bool scaled =
        read == ReadPoint::kProcessed ||
        (row.logprobs_mode == LogprobsMode::kRawLogprobs && row.temperature_scaled_logprobs);
    if (!scaled) reported.divisor = 1.0f;
    float max = found.best == 0 ? kNever : reported.divided(value_of(found.best));
    if (read != ReadPoint::kProcessed && has_edits(row)) {
      RowEdits(args, row, logits, 0, args.vocab_size).undo(read);
      max = largest_value(reported, shared);
    }
    report(reported, max, row, args.top + int64_t{blockIdx.x} * args.max_logprobs, shared, &result);
  }
  if (threadIdx.x == 0) {
    SampleRowResult* const results = args.results_at != nullptr ? *args.results_at : args.results;
    results[blockIdx.x] = result;
    if (args.drawn != nullptr) args.drawn[blockIdx.x] = result.token;
  }
}

}  // namespace

size_t sample_workspace_bytes(int64_t num_rows, int32_t vocab_size) {
  const auto slices = static_cast<size_t>(num_rows) * static_cast<size_t>(slices_of(vocab_size));
  return slices * (sizeof(SliceFound) + kSliceList * sizeof(OrderCode));
}

void sample(const SampleArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  HEADRACE_CHECK(
      args.vocab_size >= 1 && args.vocab_size <= kMaxVocabulary && args.vocab_size <= args.stride,
      args.vocab_size);
  HEADRACE_CHECK(args.max_logprobs >= 0 && args.max_logprobs <= kMaxDeviceLogprobs,
                 args.max_logprobs);
  HEADRACE_CHECK(args.workspace != nullptr);
  const LaunchShape scan{.grid = {grid_size(args.num_rows * slices_of(args.vocab_size))},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(ScanShared),
                         .overlaps = true};
  launch("sample_scan", sample_scan_kernel, scan, stream, args);
  const LaunchShape draw{.grid = {grid_size(args.num_rows)},
                         .threads = kSampleThreads,
                         .shared_bytes = sizeof(SampleShared),
                         .overlaps = true};
  launch("sample_draw", sample_draw_kernel, draw, stream, args);
}

}  // namespace headrace::cuda
