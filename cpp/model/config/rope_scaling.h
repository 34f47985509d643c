#pragma once

// From rope parameters to angles: the formulas of each kind of scaling. They repeat the float32
// steps of the implementation that published models were trained with, because at long context a
// last bit of a frequency is visible.

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/contract/rope.h"

namespace headrace {

enum class RopeKind : uint8_t {
  kDefault,
  kLinear,
  kDynamic,
  kYarn,
  kLlama3,
  kLongRope,
  kNtkAlpha,      ///< NTK-aware scaling by a fixed alpha, whatever the length
  kProportional,  ///< the first pairs turn as they do where all do, the others not at all
};

/// How pairs that turn by time, height and width follow each other.
enum class MropeOrder : uint8_t {
  kBlocks,    ///< those of time, those of height, those of width (Qwen2-VL)
  kInTurn,    ///< time, height, width, time, ...; the rest are time's (Qwen3-VL)
  kTimeLast,  ///< height, width, height, width, ..., then those of time (ERNIE-4.5-VL)
};

/// Which pairs of a head turn by time, height and width. No sections: all pairs go by the position.
struct MropeDefaults {
  std::vector<int32_t> sections;  ///< how many of time, height and width
  MropeOrder order = MropeOrder::kBlocks;
};

struct RopeScaling {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;        ///< of kNtkAlpha alpha
  int32_t rotary_dim = 0;     ///< elements of a head that turn
  int32_t turning_pairs = 0;  ///< kProportional: of rotary_dim / 2
  /// L: positions the model was trained with before scaling (yarn, llama3, longrope), or
  /// max_position_embeddings (dynamic).
  int64_t original_length = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn: turns over L
  bool truncate = true;                                  ///< yarn: round the ramp's ends
  std::optional<double> attention_factor;                ///< yarn, longrope; else from the factor
  double mscale = 0.0, mscale_all_dim = 0.0;             ///< yarn; 0 = not given
  /// longrope: [rotary_dim / 2] of wavelengths, of sequences up to L and of longer ones.
  std::vector<float> short_factors, long_factors;
  /// Queries at position p are multiplied by 1 + query_beta * ln(1 + floor(p / L)).
  double query_beta = 0.0;
  MropeDefaults mrope;

  /// YaRN's factor of scores where it isn't in the cosines: m^2, m = 0.1 * mscale_all_dim *
  /// ln(factor) + 1. 1 without mscale_all_dim.
  double score_factor() const;
};

/// REQUIRES: rotary_dim even and > 2, theta > 1, factor > 0, original_length > 0 where the kind
/// uses it, low_freq_factor < high_freq_factor; sections, if any, three that sum to rotary_dim / 2.
RopeSpec make_rope(const RopeScaling& scaling, RopeStyle style);

}  // namespace headrace
