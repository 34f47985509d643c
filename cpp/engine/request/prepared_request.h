#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/adapters/lora_table.h"
#include "engine/masks/guide.h"
#include "engine/media/media_limits.h"
#include "engine/media/request_media.h"
#include "engine/request/booking.h"
#include "engine/request/pooler.h"
#include "engine/request/request_state.h"
#include "headrace/request.h"
#include "sample/sampler_state.h"
#include "sched/scheduler.h"

namespace headrace::internal {

/// What a model can take. Immutable.
struct RequestLimits {
  int32_t vocab_size = 0, hidden_size = 0;
  int32_t max_model_len = 0;
  int32_t max_num_batched_tokens = 0, max_prefill_chunk = 0;     ///< for messages
  int32_t num_kv_blocks = 0, num_kv_groups = 1, block_size = 0;  ///< for messages, as the next one
  int64_t kv_tokens = 0;  ///< of one sequence, that the blocks hold
  /// RopeSpec::dynamic_original_max: longer prompts share no blocks with prompts of other lengths.
  int32_t dynamic_rope_max = 0;
  std::vector<int32_t> eos_token_ids;
  bool causal = true, generates = true;  ///< ModelInfo's
  int32_t head_outputs = 0;              ///< ModelInfo's, as the next one
  bool tells_pairs = false;
  bool has_head = true;  ///< there are logits
  MediaLimits media;
  /// Scheduler::fits.
  std::function<bool(int64_t prompt_tokens, int64_t max_tokens)> fits;
  /// Scheduler::fits_step.
  std::function<bool(int64_t prompt_tokens)> fits_step;
};

/// A checked request, ready for the scheduler.
struct PreparedRequest {
  std::shared_ptr<RequestState> state;
  std::unique_ptr<SamplerState> sampler;
  std::shared_ptr<Guide> guide;         ///< null: no constraint
  std::unique_ptr<Pooler> pooler;       ///< null: it generates
  std::unique_ptr<RequestMedia> media;  ///< null: text alone
  SeqSpec spec;
  LoraLease lora;
  Booking booking;              ///< of its replica's workload
  std::vector<int32_t> prompt;  ///< a copy; only for prompt log-probabilities
};

/// Checks everything a request can get wrong, on the caller's thread. Throws Error
/// (kInvalidArgument, kLimitExceeded) naming value and limit. `now` is in the scheduler's clock.
/// Nobody computes it yet: RequestState::set_replica().
PreparedRequest prepare_request(RequestOptions options, const RequestLimits& limits, LoraLease lora,
                                double now);

}  // namespace headrace::internal
