#pragma once

// Which rotary embeddings a config asks for.

#include <cstdint>
#include <optional>

#include "model/config/config_reader.h"
#include "model/config/rope_scaling.h"

namespace headrace {

/// How a family's keys are read.
struct RopeRules {
  /// Where partial_rotary_factor is absent. Nullopt: whole heads turn, and the key must be 1.
  std::optional<double> partial_rotary = {};
  bool fixed_alpha = false;  ///< an alpha makes dynamic scaling RopeKind::kNtkAlpha
  /// The only scaling is LongRoPE, also as "su" and "yarn", and the length of training is the
  /// model's key alone, or this.
  std::optional<int64_t> longrope_original = {};
  bool reads_query_beta = false;  ///< llama_4_scaling_beta is read
  bool requires_theta = false;    ///< rope_theta must be there
  /// mrope_section and mrope_interleaved may be there: without pictures, the three axes of a
  /// position are equal.
  bool has_mrope_keys = false;
  const JsonValue* usual = nullptr;  ///< parameters of a config without any; null: none
  /// YaRN's mscale_all_dim multiplies scores, too (RopeScaling::score_factor).
  bool scales_attention = false;
  bool proportional = false;  ///< rope_type may be "proportional" (Gemma 4)
};

/// What the readers know of the model.
struct RopeDefaults {
  double theta = 10000.0;
  int64_t max_position_embeddings = 0;
  MropeDefaults mrope = {};  ///< mrope_section (or freq_allocation) is read where it has sections
  int32_t head_dim = 0;
  int32_t sliding_head_dim = 0;  ///< of layers with a window, where they have a rope of their own
  RopeRules rules = {};
};

/// Reads rope_theta, rope_scaling, rope_parameters and original_max_position_embeddings of a
/// config, mrope_section and, where time comes last, freq_allocation. Throws Error(kUnsupported)
/// for a rope_type or a key that is not understood and Error(kCorruptFile) for a value out of
/// range.
RopeScaling read_rope_scaling(ConfigReader& config, const RopeDefaults& defaults);

/// The rotary embedding of layers with a window, where they have one of their own.
struct SlidingRope {
  double theta = 10000.0;
  const char* theta_key = nullptr;  ///< theta's in files without rope_parameters; null: none
  const char* full_theta_key = "rope_theta";  ///< the same of layers without a window
};

struct RopesByType {
  RopeScaling full, sliding;
};

/// Reads rope_parameters, which has an object for full_attention and one for sliding_attention.
/// In older files rope_scaling is that of layers without a window. Throws
/// likewise.
RopesByType read_ropes_by_type(ConfigReader& config, const RopeDefaults& defaults,
                               const SlidingRope& sliding);

}  // namespace headrace
