#pragma once

#include <cstdint>
#include <vector>

#include "backend/contract/experts_op.h"

namespace headrace {

/// The mixture-of-experts layers of a decoder, from config.json.
struct MoeConfig {
  RouterSpec router;                ///< num_experts is 0 for a dense model
  int32_t expert_width = 0;         ///< intermediate size of one expert
  int32_t latent_width = 0;         ///< of the rows that experts work on; 0: the hidden size
  int32_t shared_width = 0;         ///< of the MLP that all rows go through; 0: there is none
  bool shared_gate = false;         ///< whether a gate of its own weighs that MLP
  bool has_correction = false;      ///< whether a bias is added to the scores to choose experts
  std::vector<bool> sparse_layers;  ///< [num_layers] those with experts
  /// Intermediate size of an expert of vision: as many as of text, with a router of their own, for
  /// rows of tokens from `first_vision_token` on. 0: all rows go to the same experts.
  int32_t vision_width = 0;
  int32_t first_vision_token = 0;  ///< 0: every row is text
};

}  // namespace headrace
