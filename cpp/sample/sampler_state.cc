#include "sample/sampler_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

// Below this, temperature and top_p mean greedy: dividing by them would overflow.
constexpr float kTiny = 1e-5f;

bool ends_with(std::span<const int32_t> text, std::span<const int32_t> suffix) {
  return text.size() >= suffix.size() &&
         std::equal(suffix.begin(), suffix.end(),
                    text.end() - static_cast<ptrdiff_t>(suffix.size()));
}

LogprobsMode mode_of(LogprobsKind kind) {
  switch (kind) {
    case LogprobsKind::kRawLogprobs:
      return LogprobsMode::kRawLogprobs;
    case LogprobsKind::kRawLogits:
      return LogprobsMode::kRawLogits;
    case LogprobsKind::kProcessedLogprobs:
      return LogprobsMode::kProcessedLogprobs;
    case LogprobsKind::kProcessedLogits:
      return LogprobsMode::kProcessedLogits;
    case LogprobsKind::kPenalizedLogprobs:
      return LogprobsMode::kPenalizedLogprobs;
  }
  return LogprobsMode::kRawLogprobs;
}

LogprobsMode raw_mode_of(LogprobsKind kind) {
  const bool logits = kind == LogprobsKind::kRawLogits || kind == LogprobsKind::kProcessedLogits;
  return logits ? LogprobsMode::kRawLogits : LogprobsMode::kRawLogprobs;
}

}  // namespace

bool is_greedy(const SamplingParams& params) noexcept {
  return params.temperature < kTiny || params.top_p < kTiny || params.top_k == 1;
}

SamplerState::SamplerState(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt,
                           std::vector<int32_t> end_tokens)
    : params_(std::move(params)),
      seed_(seed),
      end_tokens_(std::move(end_tokens)),
      greedy_(is_greedy(params_)) {
  const bool repeats = params_.repetition_penalty != 1.0f;
  counts_seen_ = repeats || params_.frequency_penalty != 0.0f || params_.presence_penalty != 0.0f;
  if (repeats && !params_.penalize_output_only) {
    for (int32_t token : prompt) note_seen(token, 0);
  }
  bias_.reserve(params_.logit_bias.size());
  for (const auto& [token, bias] : params_.logit_bias) bias_.push_back({token, bias});
  for (auto& word : params_.bad_words) {
    if (word.size() == 1) {
      always_banned_.push_back(word.front());
    } else {
      longer_words_.push_back(std::move(word));
    }
  }
  params_.bad_words.clear();
  update_banned();
  if (params_.no_repeat_ngram_size > 0) {
    ngrams_ = std::make_unique<NgramIndex>(params_.no_repeat_ngram_size, prompt);
  }
}

SampleRow SamplerState::base_row(int32_t logits_row,
                                 const std::optional<int32_t>& num_logprobs) const {
  SampleRow row;
  row.logits_row = logits_row;
  row.temperature = params_.temperature < kTiny ? 1.0f : params_.temperature;
  row.top_p = std::max(params_.top_p, kTiny);
  row.num_logprobs = num_logprobs.value_or(-1);
  row.temperature_scaled_logprobs = params_.temperature_scaled_logprobs;
  row.top_p_normalized_logprobs = params_.top_p_normalized_logprobs;
  return row;
}

SampleRow SamplerState::guess_row(int32_t logits_row, int32_t ahead) const {
  SampleRow row = base_row(logits_row, std::nullopt);
  row.greedy = greedy_;
  row.seed = seed_;
  row.position = static_cast<uint64_t>(generated_) + static_cast<uint64_t>(ahead);
  row.top_k = std::max(params_.top_k, 0);
  row.min_p = params_.min_p;
  row.bias = bias_;
  return row;
}

SampleRow SamplerState::next_row(int32_t logits_row, int32_t ahead) {
  HEADRACE_CHECK(ahead == 0 || !follows_output(), ahead);
  SampleRow row = guess_row(logits_row, ahead);
  row.num_logprobs = num_logprobs();
  row.logprobs_mode = mode_of(params_.logprobs_kind);
  row.repetition_penalty = params_.repetition_penalty;
  row.frequency_penalty = params_.frequency_penalty;
  row.presence_penalty = params_.presence_penalty;
  row.seen = seen_;
  row.masked = masked_now(ahead);
  row.banned = banned_;
  return row;
}

std::span<const int32_t> SamplerState::masked_now(int32_t ahead) {
  const std::span<const int32_t> ends =
      generated_ + ahead < params_.min_tokens ? end_tokens_ : std::span<const int32_t>();
  if (!ngrams_) return ends;
  const std::span<const int32_t> repeats = ngrams_->followers();
  if (ends.empty()) return repeats;
  masked_.assign(ends.begin(), ends.end());
  masked_.insert(masked_.end(), repeats.begin(), repeats.end());
  return masked_;
}

SampleRow SamplerState::prompt_row(int32_t logits_row, int32_t token) const {
  SampleRow row = base_row(logits_row, params_.prompt_logprobs);
  row.logprobs_mode = raw_mode_of(params_.logprobs_kind);
  row.forced_token = token;
  return row;
}

void SamplerState::append(int32_t token) {
  ++generated_;
  if (counts_seen_) note_seen(token, 1);
  if (ngrams_) ngrams_->append(token);
  if (!longer_words_.empty()) {
    output_.push_back(token);
    update_banned();
  }
}

void SamplerState::note_seen(int32_t token, int32_t output_count) {
  const auto [place, is_new] = seen_index_.try_emplace(token, seen_.size());
  if (is_new) seen_.push_back({token, 0});
  seen_[place->second].output_count += output_count;
}

void SamplerState::update_banned() {
  banned_ = always_banned_;
  for (const auto& word : longer_words_) {
    if (ends_with(output_, std::span(word).first(word.size() - 1))) banned_.push_back(word.back());
  }
  std::sort(banned_.begin(), banned_.end());
  banned_.erase(std::unique(banned_.begin(), banned_.end()), banned_.end());
}

}  // namespace headrace
