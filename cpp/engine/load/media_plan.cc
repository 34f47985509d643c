#include "engine/load/media_plan.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::internal {

namespace {

/// Steps whose given embeddings the cache holds unless it is told otherwise: the one that is
/// computed, and what comes next.
constexpr int64_t kCachedSteps = 2;

}  // namespace

EncoderStage::Parts plan_media(const ModelOptions& options, const ModelConfig& config,
                               const DecoderOptions& decoder, const Backend& backend,
                               BackendNeeds needs) {
  EncoderStage::Parts out;
  MediaLimits& limits = out.limits;
  needs.given_rows = true;
  try {
    backend.require(needs);
    limits.refusal.clear();
  } catch (const Error& error) {
    limits.refusal = error.what();
    return out;
  }
  limits.hidden_size = config.hidden_size;
  limits.num_layers = config.num_layers;
  limits.activation = backend.activation_dtype(decoder.storage);
  limits.rope_axes = !config.rope.axes.empty();
  limits.whole_at_once = !config.causal;
  limits.cache_bytes = options.encoder_cache_bytes;
  if (limits.cache_bytes == 0) {
    const int64_t rows = kCachedSteps * std::max(decoder.max_rows, kUnitRows);
    limits.cache_bytes = tensor_bytes(rows, config.hidden_size, limits.activation);
  }
  out.max_rows = decoder.max_rows;
  out.max_tokens = options.max_encoder_tokens > 0 ? options.max_encoder_tokens
                                                  : std::max(1, decoder.max_rows / 2);
  return out;
}

}  // namespace headrace::internal
