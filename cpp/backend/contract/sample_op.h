#pragma once

// The sampling op's rows and results. See Backend::sample for the order of operations.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

/// Where log-probabilities are read in the pipeline, and whether they are normalised.
enum class LogprobsMode : uint8_t {
  kRawLogprobs,  ///< log-softmax of the model's logits (after the vocabulary and guided masks)
  kRawLogits,
  kProcessedLogprobs,  ///< log-softmax after bias, penalties, temperature and bans
  kProcessedLogits,
  kPenalizedLogprobs,  ///< log-softmax after bias and penalties, before temperature and bans
};

/// One token id that the request has seen. Each id appears once per row.
struct SeenToken {
  int32_t token = 0;
  int32_t output_count = 0;  ///< times generated; 0 = it occurs in the prompt only
};

struct LogitBias {
  int32_t token = 0;
  float bias = 0.0f;
};

/// Rows that a step draws from, in all calls of begin_sample().
inline constexpr size_t kMostDrawn = 4096;

/// One row of logits to draw from. Spans are host memory, alive until sample() has returned.
struct SampleRow {
  int32_t logits_row = 0;  ///< row of the logits tensor
  /// >= 0: no draw; this token is "sampled" and its log-probability reported (prompt_logprobs).
  int32_t forced_token = -1;

  bool greedy = false;       ///< argmax of the processed logits; ties go to the lower id
  uint64_t seed = 0;         ///< Philox key
  uint64_t position = 0;     ///< Philox counter: index of the generated token in its request
  float temperature = 1.0f;  ///< > 0 (ignored when greedy)
  int32_t top_k = 0;         ///< 0 = off
  float top_p = 1.0f;        ///< in (0, 1]; 1 = off
  float min_p = 0.0f;        ///< in [0, 1]; 0 = off
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::span<const SeenToken> seen;  ///< may be empty when the three penalties are neutral
  std::span<const LogitBias> bias;  ///< each id once
  std::span<const int32_t> masked;  ///< set to -inf before the penalties (EOS early, n-grams)
  std::span<const int32_t> banned;  ///< set to -inf after temperature (bad words)
  /// Guided decoding: bit t of word t / 32 allows token t; covers the vocabulary; null = all.
  const uint32_t* allowed = nullptr;

  int32_t num_logprobs = -1;  ///< -1: none. k >= 0: the sampled token's and the k best
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  /// Divide the logits that raw log-probabilities are read from by the temperature.
  bool temperature_scaled_logprobs = false;
  /// Renormalise raw log-probabilities over the top_p set (others are -inf).
  bool top_p_normalized_logprobs = false;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct SampleResult {
  /// False: of the row's logits as the model gave them, in [0, vocab_size), one is NaN or +inf, or
  /// none is finite. -inf beside finite ones is fine. What else is here means nothing then.
  bool finite = true;
  int32_t token = 0;
  float logprob = 0.0f;           ///< of `token`; only when asked for
  int32_t rank = 0;               ///< 1 + number of tokens with a larger value; only when asked for
  std::vector<TokenLogprob> top;  ///< the k best, best first, ties by lower id
};

}  // namespace headrace
