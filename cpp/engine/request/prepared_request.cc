#include "engine/request/prepared_request.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "sample/validate.h"

namespace headrace::internal {

namespace {

void check_prompt(const std::vector<int32_t>& prompt, const RequestLimits& limits) {
  if (prompt.empty()) {
    throw_error(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token id.");
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= limits.vocab_size) {
      throw_error(ErrorCode::kInvalidArgument, "prompt_token_ids[", i, "] is ", prompt[i],
                  ", which is outside the vocabulary of ", limits.vocab_size, " ids.");
    }
  }
}

int64_t output_limit(const RequestOptions& options, const RequestLimits& limits) {
  const auto prompt_len = static_cast<int64_t>(options.prompt_token_ids.size());
  const int64_t least = std::max(options.sampling.min_tokens, 1);
  if (prompt_len + least > limits.max_model_len) {
    throw_error(ErrorCode::kLimitExceeded, "a prompt of ", prompt_len, " tokens and at least ",
                least, " generated exceed max_model_len ", limits.max_model_len,
                ": shorten the prompt or raise max_model_len.");
  }
  const int64_t room = limits.max_model_len - prompt_len;
  const int64_t wanted = options.sampling.max_tokens;
  const int64_t max_tokens = wanted == 0 ? room : std::min(wanted, room);
  if (!limits.fits(prompt_len, max_tokens)) {
    throw_error(ErrorCode::kLimitExceeded, "a prompt of ", prompt_len, " tokens and up to ",
                max_tokens, " generated exceed the KV cache of ",
                int64_t{limits.num_kv_blocks} * limits.block_size, " tokens (",
                limits.num_kv_blocks, " blocks of ", limits.block_size,
                "): lower max_tokens or give it more memory.");
  }
  return max_tokens;
}

std::vector<int32_t> end_tokens(const SamplingParams& sampling, const RequestLimits& limits) {
  std::vector<int32_t> out = sampling.stop_token_ids;
  if (!sampling.ignore_eos) {
    out.insert(out.end(), limits.eos_token_ids.begin(), limits.eos_token_ids.end());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::shared_ptr<Guide> make_guide(const RequestOptions& options, const RequestLimits& limits) {
  if (!options.constraint) return nullptr;
  GuideEnds ends;
  if (!options.sampling.ignore_eos) ends.eos = limits.eos_token_ids;
  ends.stop_tokens = options.sampling.stop_token_ids;
  std::erase_if(ends.stop_tokens, [&](int32_t token) {
    return std::ranges::find(ends.eos, token) != ends.eos.end();
  });
  ends.min_tokens = options.sampling.min_tokens;
  return std::make_shared<Guide>(options.constraint, limits.vocab_size, std::move(ends));
}

uint64_t entropy() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

PreparedRequest prepare_request(RequestOptions options, const RequestLimits& limits, LoraLease lora,
                                const std::shared_ptr<ModelControl>& model, double now) {
  check_prompt(options.prompt_token_ids, limits);
  validate_sampling_params(options.sampling, limits.vocab_size);
  const int64_t max_tokens = output_limit(options, limits);

  PreparedRequest out;
  const auto prompt_len = static_cast<int32_t>(options.prompt_token_ids.size());
  const uint64_t seed = options.sampling.seed ? *options.sampling.seed : entropy();
  out.state =
      std::make_shared<RequestState>(std::move(options.request_id), seed, prompt_len, model);

  out.guide = make_guide(options, limits);

  SeqSpec& spec = out.spec;
  spec.max_tokens = static_cast<int32_t>(max_tokens);
  spec.min_tokens = options.sampling.min_tokens;
  spec.end_tokens = end_tokens(options.sampling, limits);
  spec.stop_sequences = options.sampling.stop_sequences;
  spec.stop_sequences_anywhere = options.sampling.stop_sequences_anywhere;
  spec.priority = options.priority;
  if (options.timeout)
    spec.deadline = now + std::chrono::duration<double>(*options.timeout).count();
  if (options.sampling.prompt_logprobs) {
    spec.read_prefix_cache = false;
    spec.wants_all_prompt_logits = true;
    out.prompt = options.prompt_token_ids;
  }
  if (limits.dynamic_rope_max > 0 && prompt_len > limits.dynamic_rope_max) {
    spec.identity.sequence.rope_len = prompt_len;
  }
  if (lora != nullptr) spec.identity.sequence.adapter = lora->identity;
  out.lora = std::move(lora);
  out.sampler = std::make_unique<SamplerState>(std::move(options.sampling), seed,
                                               options.prompt_token_ids, spec.end_tokens);
  spec.prompt = std::move(options.prompt_token_ids);
  return out;
}

}  // namespace headrace::internal
