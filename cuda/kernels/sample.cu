#include "cuda/kernels/sample.h"

#include "backend/philox.h"
#include "cuda/kernels/sample_edits.cuh"
#include "cuda/kernels/sample_report.cuh"
#include "cuda/kernels/sample_row.cuh"

namespace headrace::cuda {
namespace {

/// Step 9.
__device__ int32_t draw(const RowReader& row, float max, const SampleRowArgs& args,
                        SampleShared* shared) {
  Survey survey(row, max, args.min_p, shared);
  const auto u = static_cast<double>(philox_uniform(args.seed, args.position));
  const bool top_k = args.top_k > 0 && static_cast<uint32_t>(args.top_k) < survey.count();
  const auto share_of = [](double share, Amount sum) { return share * static_cast<double>(sum); };
  if (top_k) {
    survey.narrow(static_cast<uint32_t>(args.top_k), 0);
  } else {
    const double share = args.top_p < 1.0f ? static_cast<double>(args.top_p) : u;
    survey.narrow(1, static_cast<Amount>(share_of(share, survey.total())));
  }
  OrderCode last = 0;
  Amount total = survey.total();
  if (top_k) {
    last = survey.find(0, static_cast<Amount>(args.top_k), false, false).code;
    total = survey.sum(last);
  }
  if (args.top_p < 1.0f) {
    const double target = ceil(share_of(static_cast<double>(args.top_p), total));
    const FoundPlace found = survey.find(last, static_cast<Amount>(target), false, true);
    last = found.code;
    total = found.reached;
  }
  return token_of(survey.find(last, static_cast<Amount>(share_of(u, total)), true, true).code);
}

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

__device__ int32_t choose_token(const RowReader& row, const SampleRowArgs& args,
                                SampleShared* shared) {
  if (args.forced_token >= 0) return args.forced_token;
  const OrderCode best = best_token(row, shared);
  if (best == 0) return smallest_allowed(row, shared);
  return args.greedy ? token_of(best) : draw(row, value_of(best), args, shared);
}

__global__ void __launch_bounds__(kSampleThreads, 1) sample_kernel(SampleArgs args) {
  auto* shared = reinterpret_cast<SampleShared*>(shared_memory());
  const SampleRowArgs row = args.rows[blockIdx.x];
  float* logits = args.logits + row.logits_row * args.stride;
  const RowEdits edits(args, row, logits);
  const ReadPoint read = read_point(row);
  // A forced token whose values are read before the edits needs none.
  if (row.forced_token < 0 || read > ReadPoint::kRaw) edits.apply();
  const float temperature = row.greedy ? 1.0f : row.temperature;
  const RowReader processed{logits, row.allowed, args.vocab_size, temperature};
  SampleRowResult result;
  result.token = choose_token(processed, row, shared);
  if (read != ReadPoint::kNowhere) {
    RowReader reported = processed;
    if (read != ReadPoint::kProcessed) {
      if (row.forced_token < 0 || read > ReadPoint::kRaw) edits.undo(read);
      const bool scaled =
          row.logprobs_mode == LogprobsMode::kRawLogprobs && row.temperature_scaled_logprobs;
      if (!scaled) reported.divisor = 1.0f;
    }
    report(reported, row, args.top + int64_t{blockIdx.x} * args.max_logprobs, shared, &result);
  }
  if (threadIdx.x == 0) {
    args.results[blockIdx.x] = result;
    if (args.drawn != nullptr) args.drawn[blockIdx.x] = result.token;
  }
}

}  // namespace

void sample(const SampleArgs& args, Stream stream) {
  if (args.num_rows == 0) return;
  HEADRACE_CHECK(
      args.vocab_size >= 1 && args.vocab_size <= kMaxVocabulary && args.vocab_size <= args.stride,
      args.vocab_size);
  HEADRACE_CHECK(args.max_logprobs >= 0 && args.max_logprobs <= kMaxDeviceLogprobs,
                 args.max_logprobs);
  const LaunchShape shape{.grid = {grid_size(args.num_rows)},
                          .threads = kSampleThreads,
                          .shared_bytes = sizeof(SampleShared)};
  launch("sample", sample_kernel, shape, stream, args);
}

}  // namespace headrace::cuda
