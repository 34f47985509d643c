#pragma once

#include <cstdint>
#include <vector>

#include "backend/contract/experts_op.h"

namespace headrace {

/// The mixture-of-experts layers of a decoder, from config.json.
struct MoeConfig {
  RouterSpec router;                ///< num_experts is 0 for a dense model
  int32_t expert_width = 0;         ///< intermediate size of one expert
  int32_t shared_width = 0;         ///< of the MLP that all rows go through; 0: there is none
  bool shared_gate = false;         ///< whether a gate of its own weighs that MLP
  bool has_correction = false;      ///< whether a bias is added to the scores to choose experts
  std::vector<bool> sparse_layers;  ///< [num_layers] those with experts
};

}  // namespace headrace
