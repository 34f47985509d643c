#pragma once

// Backend::sample on the device, any number of rows: many blocks scan a row's slices, one draws,
// or many where many tokens matter.
// See backend.h for the order of operations and backend/reference/reference_sample.h for what
// that leaves open.

#include <cstddef>
#include <cstdint>

#include "backend/contract/sample_op.h"
#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

/// Elements [begin, end) of one of SampleArgs' arrays.
struct SampleRange {
  int32_t begin = 0, end = 0;
};

/// SampleRow for the device.
struct SampleRowArgs {
  uint64_t seed = 0, position = 0;
  /// No two rows name the same one: copy it first (gather_rows). < 0: the row is padding, of which
  /// nothing is read or written.
  int64_t logits_row = 0;
  const uint32_t* allowed = nullptr;  ///< device memory or null
  int32_t forced_token = -1;
  int32_t top_k = 0;
  float temperature = 1.0f;
  float top_p = 1.0f, min_p = 0.0f;
  float repetition_penalty = 1.0f, frequency_penalty = 0.0f, presence_penalty = 0.0f;
  SampleRange bias, masked, seen, banned;
  int32_t num_logprobs = -1;  ///< <= SampleArgs::max_logprobs
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  bool greedy = false;
  bool temperature_scaled_logprobs = false;
  bool top_p_normalized_logprobs = false;
};

/// Does the draw look at more than the best token?
constexpr bool draws(const SampleRowArgs& row) { return !row.greedy && row.forced_token < 0; }

/// Does it need the sum of all tokens' weights, where not all of them are listed? Only such draws
/// may be spread over many blocks.
constexpr bool needs_total(const SampleRowArgs& row) {
  return draws(row) && row.top_k <= 0 && row.min_p <= 0.0f;
}

/// SampleResult from the device.
struct SampleRowResult {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;
  int32_t num_top = 0;  ///< entries of its row of SampleArgs::top
  /// False if a logit of the model is NaN or +inf, or none is above -inf; ids from vocab_size on
  /// don't count. The rest is what it would be with -inf for NaN.
  bool finite = true;
};

/// Most best tokens that the device reports for a row.
inline constexpr int32_t kMaxDeviceLogprobs = 1024;

struct SampleArgs {
  float* logits = nullptr;  ///< [S, stride], lost
  int64_t stride = 0;
  int32_t vocab_size = 0;
  const SampleRowArgs* rows = nullptr;  ///< [num_rows] device memory, as are the arrays
  int64_t num_rows = 0;
  bool spreads = true;  ///< false: no row needs_total(), so that two kernels less are launched
  const LogitBias* bias = nullptr;
  const int32_t* tokens = nullptr;  ///< of `masked` and `banned`
  const SeenToken* seen = nullptr;
  /// One float for each element of the three arrays, in this order: bias, tokens, seen.
  float* saved = nullptr;
  int32_t num_bias = 0, num_tokens = 0;
  void* workspace = nullptr;           ///< sample_workspace_bytes(), aligned to 16 bytes
  SampleRowResult* results = nullptr;  ///< [num_rows] may be page-locked memory, as may `top`
  /// Where results are to be found, on the device; null: `results` says it.
  SampleRowResult* const* results_at = nullptr;
  TokenLogprob* top = nullptr;  ///< [num_rows][max_logprobs], best first
  int32_t max_logprobs = 0;     ///< <= kMaxDeviceLogprobs
  int32_t* drawn = nullptr;     ///< [num_rows] the tokens once more, or null
};

/// What SampleArgs::workspace takes: 2.1 KiB for each 8192 ids of a row, and 32 KiB for a row.
size_t sample_workspace_bytes(int64_t num_rows, int32_t vocab_size);

/// Moves V*4 bytes a row. A draw that the best few thousand tokens don't decide (flat distributions
/// without top_k) reads the row twice more, by all blocks. One block reads it alone, a few times:
/// with a large top_k or a small min_p; with thousands of equal logits; for log-probabilities
/// of a token that isn't among the best, of values before the row's edits, or of more than 64
/// tokens.
void sample(const SampleArgs& args, Stream stream);

}  // namespace headrace::cuda
