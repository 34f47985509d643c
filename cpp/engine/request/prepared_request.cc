#include "engine/request/prepared_request.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "engine/media/check_media.h"
#include "sample/validate.h"

namespace headrace::internal {

namespace {

constexpr size_t kMaxLogitTokens = 64;  ///< that one request reads

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

void check_pooling(const PoolingParams& pooling, int64_t prompt_len, const RequestLimits& limits) {
  const auto refuse = [](const auto&... parts) {
    throw_error(ErrorCode::kInvalidArgument, "pooling: ", parts...);
  };
  if (pooling.pooling > Pooling::kCls) {
    refuse("pooling is ", static_cast<int>(pooling.pooling), ": it must be kLast, kMean or kCls.");
  }
  if (pooling.use_head && limits.head_outputs == 0) {
    refuse("use_head is set, but the checkpoint has no layers behind pooling: leave it out.");
  }
  const int32_t most = pooling.use_head ? limits.head_outputs : limits.hidden_size;
  if (pooling.dimensions < 0 || pooling.dimensions > most) {
    refuse("dimensions is ", pooling.dimensions, ": it must be from 1 to ", most,
           ", or 0 for all.");
  }
  if (pooling.second_text_at < 0 || pooling.second_text_at >= prompt_len) {
    refuse("second_text_at is ", pooling.second_text_at, ": it must be a place in the prompt of ",
           prompt_len, " tokens.");
  }
  if (pooling.second_text_at > 0 && !limits.tells_pairs) {
    refuse("second_text_at is set, but the model doesn't tell two texts apart: leave it at 0.");
  }
  const std::vector<int32_t>& ids = pooling.logit_token_ids;
  if (ids.empty()) return;
  if (ids.size() > kMaxLogitTokens) {
    refuse("logit_token_ids has ", ids.size(), " ids: at most ", kMaxLogitTokens, " are read.");
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= limits.vocab_size) {
      refuse("logit_token_ids has ", id, ", which is outside the vocabulary of ", limits.vocab_size,
             " ids.");
    }
  }
  if (pooling.pooling != Pooling::kLast || pooling.dimensions != 0 || pooling.normalize ||
      pooling.use_head) {
    refuse(
        "logit_token_ids asks for logits behind the last token: leave pooling at kLast, dimensions "
        "at 0 and use_head at false, and set normalize to false.");
  }
  if (!limits.has_head) {
    throw_error(ErrorCode::kUnsupported,
                "the checkpoint has no head (lm_head.weight): it gives embeddings, no logits.");
  }
}

/// That what it asks for is what the model gives.
void check_kind(const RequestOptions& options, const RequestLimits& limits) {
  if (options.pooling) {
    check_pooling(*options.pooling, static_cast<int64_t>(options.prompt_token_ids.size()), limits);
    if (options.sampling != SamplingParams{} || options.constraint) {
      throw_error(ErrorCode::kInvalidArgument, options.constraint ? "constraint" : "sampling",
                  " is set, but the request asks for pooling: nothing is sampled. Leave it out.");
    }
  } else if (!limits.generates) {
    throw_error(ErrorCode::kUnsupported, "the model gives embeddings, no text: ",
                limits.causal ? "its checkpoint has no head (lm_head.weight)"
                              : "its attention is bidirectional",
                ". Ask for pooling.");
  }
}

std::string describe_cache(const RequestLimits& limits) {
  const std::string groups =
      limits.num_kv_groups > 1 ? str_cat(", for ", limits.num_kv_groups, " groups of layers") : "";
  return str_cat("the KV cache of ", limits.kv_tokens, " tokens (", limits.num_kv_blocks,
                 " blocks of ", limits.block_size, groups, ")");
}

void check_pooled_length(int64_t prompt_len, const RequestLimits& limits) {
  if (prompt_len > limits.max_model_len) {
    throw_error(ErrorCode::kLimitExceeded, "a prompt of ", prompt_len,
                " tokens exceeds max_model_len ", limits.max_model_len,
                ": shorten the prompt or raise max_model_len.");
  }
  if (!limits.causal && !limits.fits_step(prompt_len)) {
    throw_error(ErrorCode::kLimitExceeded, "a prompt of ", prompt_len,
                " tokens doesn't fit one step of max_num_batched_tokens ",
                limits.max_num_batched_tokens, ", max_prefill_chunk ", limits.max_prefill_chunk,
                ": the model's attention is bidirectional, so that all of it is computed at once. "
                "Shorten the prompt or raise max_num_batched_tokens (and max_prefill_chunk).");
  }
  if (!limits.fits(prompt_len, 0)) {
    throw_error(ErrorCode::kLimitExceeded, "a prompt of ", prompt_len, " tokens exceeds ",
                describe_cache(limits), ": shorten it or give the cache more memory.");
  }
}

int64_t output_limit(const RequestOptions& options, const RequestLimits& limits) {
  const auto prompt_len = static_cast<int64_t>(options.prompt_token_ids.size());
  if (options.pooling) {
    check_pooled_length(prompt_len, limits);
    return 0;
  }
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
                max_tokens, " generated exceed ", describe_cache(limits),
                ": lower max_tokens or give it more memory.");
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
                                double now) {
  check_prompt(options.prompt_token_ids, limits);
  check_kind(options, limits);
  validate_sampling_params(options.sampling, limits.vocab_size);
  const int64_t max_tokens = output_limit(options, limits);
  if (!options.media.empty()) {
    const auto prompt_tokens = static_cast<int64_t>(options.prompt_token_ids.size());
    check_media(options.media, prompt_tokens, max_tokens, limits.media);
  }

  PreparedRequest out;
  const auto prompt_len = static_cast<int32_t>(options.prompt_token_ids.size());
  const uint64_t seed = options.sampling.seed ? *options.sampling.seed : entropy();
  out.state = std::make_shared<RequestState>(std::move(options.request_id), seed, prompt_len);

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
  if (options.pooling) {
    spec.one_step = !limits.causal;
    spec.read_prefix_cache = limits.causal && options.pooling->pooling == Pooling::kLast;
    out.pooler = std::make_unique<Pooler>(*std::move(options.pooling), prompt_len);
  }
  if (limits.dynamic_rope_max > 0 && prompt_len > limits.dynamic_rope_max) {
    spec.identity.sequence.rope_len = prompt_len;
  }
  if (!options.media.empty()) {
    out.media = std::make_unique<RequestMedia>(std::move(options.media), limits.media);
    out.state->note_media(out.media->image_rows(), out.media->video_rows());
    spec.identity.media = out.media->identity();
    spec.whole_items = out.media->both_ways();
    spec.ready_until = out.media->places().front().position;
  }
  if (lora != nullptr) spec.identity.sequence.adapter = lora->identity;
  out.lora = std::move(lora);
  out.sampler = std::make_unique<SamplerState>(std::move(options.sampling), seed,
                                               options.prompt_token_ids, spec.end_tokens);
  spec.prompt = std::move(options.prompt_token_ids);
  return out;
}

}  // namespace headrace::internal
