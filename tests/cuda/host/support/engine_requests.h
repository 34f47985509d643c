#pragma once

#include <utility>

#include "cuda/host/support/generate.h"
#include "headrace/engine.h"

namespace headrace {

/// Of a tiny model with few sequences and small chunks.
inline ModelOptions small_options() {
  return {.path = llama_folder(),
          .device = "cuda",
          .max_model_len = 256,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 48,
          .block_size = 16,
          .num_kv_blocks = 64};
}

inline RequestOptions small_request(int32_t length, int32_t first, int32_t max_tokens) {
  RequestOptions out;
  out.prompt_token_ids = prompt(length, first);
  out.sampling = {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
  return out;
}

}  // namespace headrace
