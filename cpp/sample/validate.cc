#include "sample/validate.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"

namespace headrace {

namespace {

constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxBadWords = 1024;
constexpr size_t kMaxStopTokens = 1024;
constexpr size_t kMaxStopSequences = 64;
constexpr size_t kMaxSequenceLength = 64;
constexpr int32_t kMaxNgram = 64;

template <class T>
[[noreturn]] void refuse(std::string_view field, std::string_view range, const T& value) {
  throw_error(ErrorCode::kInvalidArgument, field, " must be ", range, ", got ", value, ".");
}

// Written so that NaN fails.
void check_range(std::string_view field, float value, float low, float high,
                 std::string_view range) {
  if (!(value >= low && value <= high)) refuse(field, range, value);
}

void check_size(std::string_view field, size_t size, size_t limit) {
  if (size > limit) {
    throw_error(ErrorCode::kInvalidArgument, field, " may have at most ", limit, " entries, got ",
                size, ".");
  }
}

void check_token(std::string_view field, int32_t token, int32_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    throw_error(ErrorCode::kInvalidArgument, field, " names token id ", token,
                ", which is outside the vocabulary of ", vocab_size, " ids.");
  }
}

void check_sequences(std::string_view field, const std::vector<std::vector<int32_t>>& sequences,
                     size_t limit, int32_t vocab_size) {
  check_size(field, sequences.size(), limit);
  for (const auto& sequence : sequences) {
    if (sequence.empty() || sequence.size() > kMaxSequenceLength) {
      throw_error(ErrorCode::kInvalidArgument, field, " must hold sequences of 1 to ",
                  kMaxSequenceLength, " token ids, got one of ", sequence.size(), ".");
    }
    for (int32_t token : sequence) check_token(field, token, vocab_size);
  }
}

void check_biases(const std::vector<std::pair<int32_t, float>>& biases, int32_t vocab_size) {
  check_size("logit_bias", biases.size(), kMaxBiases);
  std::vector<int32_t> tokens;
  tokens.reserve(biases.size());
  for (const auto& [token, bias] : biases) {
    check_token("logit_bias", token, vocab_size);
    if (!std::isfinite(bias)) refuse("logit_bias", "finite", bias);
    tokens.push_back(token);
  }
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice != tokens.end()) {
    throw_error(ErrorCode::kInvalidArgument, "logit_bias names token id ", *twice,
                " twice: give each token one bias.");
  }
}

void check_count(std::string_view field, const std::optional<int32_t>& count, int32_t vocab_size) {
  if (count && (*count < 0 || *count > vocab_size)) {
    throw_error(ErrorCode::kInvalidArgument, field, " must be in [0, ", vocab_size,
                "] (the vocabulary's size), got ", *count, ".");
  }
}

}  // namespace

void validate_sampling_params(const SamplingParams& params, int32_t vocab_size) {
  if (!(params.temperature >= 0.0f) || !std::isfinite(params.temperature)) {
    refuse("temperature", "finite and non-negative", params.temperature);
  }
  check_range("top_p", params.top_p, 0.0f, 1.0f, "in [0, 1]");
  if (params.top_k < -1) {
    refuse("top_k", "0 or -1 (disable), or at least 1", params.top_k);
  }
  check_range("min_p", params.min_p, 0.0f, 1.0f, "in [0, 1]");
  if (!(params.repetition_penalty > 0.0f) || !std::isfinite(params.repetition_penalty)) {
    refuse("repetition_penalty", "finite and greater than zero", params.repetition_penalty);
  }
  check_range("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f, "in [-2, 2]");
  check_range("presence_penalty", params.presence_penalty, -2.0f, 2.0f, "in [-2, 2]");
  if (params.no_repeat_ngram_size < 0 || params.no_repeat_ngram_size > kMaxNgram) {
    refuse("no_repeat_ngram_size", str_cat("in [0, ", kMaxNgram, "]"), params.no_repeat_ngram_size);
  }
  check_biases(params.logit_bias, vocab_size);
  check_sequences("bad_words", params.bad_words, kMaxBadWords, vocab_size);

  if (params.max_tokens < 0) {
    refuse("max_tokens", "at least 1, or 0 (as many as the context leaves)", params.max_tokens);
  }
  if (params.min_tokens < 0) refuse("min_tokens", "at least 0", params.min_tokens);
  if (params.max_tokens > 0 && params.min_tokens > params.max_tokens) {
    throw_error(ErrorCode::kInvalidArgument,
                "min_tokens must be at most max_tokens = ", params.max_tokens, ", got ",
                params.min_tokens, ".");
  }
  check_size("stop_token_ids", params.stop_token_ids.size(), kMaxStopTokens);
  for (int32_t token : params.stop_token_ids) check_token("stop_token_ids", token, vocab_size);
  check_sequences("stop_sequences", params.stop_sequences, kMaxStopSequences, vocab_size);

  check_count("logprobs", params.logprobs, vocab_size);
  check_count("prompt_logprobs", params.prompt_logprobs, vocab_size);
  if (params.logprobs_kind > LogprobsKind::kPenalizedLogprobs) {
    refuse("logprobs_kind", "one of LogprobsKind", static_cast<int>(params.logprobs_kind));
  }
}

}  // namespace headrace
