#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/contract/sample_op.h"
#include "headrace/sampling_params.h"
#include "sample/ngram_index.h"

namespace headrace {

/// What sampling must remember of one sequence. Not thread safe.
class SamplerState {
 public:
  /// REQUIRES: `params` are valid for the vocabulary. `end_tokens`: the ids that are impossible
  /// before min_tokens.
  SamplerState(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt,
               std::vector<int32_t> end_tokens);
  SamplerState(const SamplerState&) = delete;
  SamplerState& operator=(const SamplerState&) = delete;

  /// How the next token is drawn from row `logits_row`. The spans are valid until the next call
  /// of a non-const method. `ahead`: how many tokens have been drawn and not yet been appended;
  /// REQUIRES: 0 if follows_output().
  SampleRow next_row(int32_t logits_row, int32_t ahead = 0);

  /// Reads the log-probability of the prompt's `token` from the row before it. Bias, penalties and
  /// bans shape what is generated, not the prompt: here processed values are the raw ones.
  SampleRow prompt_row(int32_t logits_row, int32_t token) const;

  /// How another model's guess is drawn of the token `ahead` tokens behind the next: by that
  /// token's random number, so that two models that agree draw the same. Knows no penalties, bans
  /// or masks.
  SampleRow guess_row(int32_t logits_row, int32_t ahead) const;

  /// The token drawn from next_row() has become part of the output.
  void append(int32_t token);

  int32_t generated() const noexcept { return generated_; }
  bool wants_logprobs() const noexcept { return params_.logprobs.has_value(); }
  int32_t num_logprobs() const noexcept { return params_.logprobs.value_or(-1); }
  int32_t num_prompt_logprobs() const noexcept { return params_.prompt_logprobs.value_or(-1); }
  /// Whether how a token is drawn depends on which tokens came before it.
  bool follows_output() const noexcept {
    return counts_seen_ || ngrams_ != nullptr || !longer_words_.empty();
  }

 private:
  void note_seen(int32_t token, int32_t output_count);
  void update_banned();
  std::span<const int32_t> masked_now(int32_t ahead);
  SampleRow base_row(int32_t logits_row, const std::optional<int32_t>& num_logprobs) const;

  SamplingParams params_;
  uint64_t seed_;
  std::vector<int32_t> end_tokens_;
  bool greedy_ = false;
  bool counts_seen_ = false;
  int32_t generated_ = 0;

  std::vector<LogitBias> bias_;
  std::vector<SeenToken> seen_;
  std::unordered_map<int32_t, size_t> seen_index_;  // token -> place in seen_

  std::unique_ptr<NgramIndex> ngrams_;  // only for no_repeat_ngram_size
  std::vector<int32_t> masked_;         // end tokens and what would repeat an n-gram

  std::vector<int32_t> always_banned_;              // bad words of one token
  std::vector<std::vector<int32_t>> longer_words_;  // the others
  std::vector<int32_t> banned_;
  std::vector<int32_t> output_;  // kept only while longer_words_ need it
};

/// Greedy is what temperature 0, top_p 0 and top_k 1 mean.
bool is_greedy(const SamplingParams& params) noexcept;

}  // namespace headrace
