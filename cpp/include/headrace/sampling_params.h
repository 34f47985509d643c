#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace headrace::inline v0 {

enum class LogprobsKind : uint8_t {
  kRawLogprobs,
  kRawLogits,
  kProcessedLogprobs,
  kProcessedLogits,
  kPenalizedLogprobs,  ///< after bans, bias and penalties, but before temperature and bad_words
};

/// How tokens are chosen. Values are validated by Engine::submit, which throws
/// Error(kInvalidArgument) naming the field, its value and its range.
struct SamplingParams {
  /// 0 (or top_p 0, or top_k 1): greedy. Otherwise logits are divided by it. Finite, >= 0.
  float temperature = 1.0f;
  float top_p = 1.0f;  ///< [0, 1]; the smallest set of tokens whose probability reaches it
  int32_t top_k = 0;   ///< 0 or -1 = off
  float min_p = 0.0f;  ///< [0, 1]; drop tokens below min_p x the largest probability
  /// Draws depend on (seed, index of the generated token) and on nothing else.
  /// nullopt: the engine picks one from the system's entropy.
  std::optional<uint64_t> seed{};

  float repetition_penalty = 1.0f;    ///< > 0; over prompt and output
  float frequency_penalty = 0.0f;     ///< [-2, 2]; output only
  float presence_penalty = 0.0f;      ///< [-2, 2]; output only
  bool penalize_output_only = false;  ///< repetition_penalty doesn't see the prompt
  /// No n tokens in a row occur twice in prompt and output together: [1, 64]; 0 = off.
  int32_t no_repeat_ngram_size = 0;
  /// Added to the logits. At most 1024 entries, each id once and within the vocabulary; finite.
  std::vector<std::pair<int32_t, float>> logit_bias{};
  /// Token sequences never generated: the last token of a sequence is banned when the tokens
  /// before it have just been generated. Each has 1..64 ids; at most 1024 sequences.
  std::vector<std::vector<int32_t>> bad_words{};

  int32_t max_tokens = 0;   ///< generated tokens; 0 = as many as the context leaves
  int32_t min_tokens = 0;   ///< EOS and stop tokens are impossible before this many
  bool ignore_eos = false;  ///< don't stop at the model's EOS tokens
  /// End the request; the token is part of the output. At most 1024 ids within the vocabulary.
  std::vector<int32_t> stop_token_ids{};
  /// End the request when its output ends in one of these (1..64 ids each, at most 64).
  std::vector<std::vector<int32_t>> stop_sequences{};
  /// Stop sequences end the request before min_tokens, too, and may begin in the prompt.
  bool stop_sequences_anywhere = false;

  /// nullopt: none. k in [0, vocabulary]: log-probability of each generated token and of the k
  /// best.
  std::optional<int32_t> logprobs{};
  /// The same for each prompt token but the first; there penalized and processed kinds are the
  /// raw ones.
  /// Such a request reads nothing from the prefix cache.
  std::optional<int32_t> prompt_logprobs{};
  LogprobsKind logprobs_kind = LogprobsKind::kRawLogprobs;
  bool temperature_scaled_logprobs = false;  ///< raw ones of logits / temperature
  bool top_p_normalized_logprobs = false;    ///< raw ones renormalised over the top_p set

  bool operator==(const SamplingParams&) const = default;
};

}  // namespace headrace::inline v0
