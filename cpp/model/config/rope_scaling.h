#pragma once

// From rope parameters to angles: the formulas of each kind of scaling. They repeat the float32
// steps of the implementation that published models were trained with, because at long context a
// last bit of a frequency is visible.

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/contract/rope.h"
#include "model/config/config_reader.h"

namespace headrace {

enum class RopeKind : uint8_t { kDefault, kLinear, kDynamic, kYarn, kLlama3 };

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
  double factor = 1.0;
  /// L: positions the model was trained with before scaling (yarn, llama3), or
  /// max_position_embeddings (dynamic).
  int64_t original_length = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn: turns over L
  bool truncate = true;                                  ///< yarn: round the ramp's ends
  std::optional<double> attention_factor;                ///< yarn; else from the factor
  double mscale = 0.0, mscale_all_dim = 0.0;             ///< yarn; 0 = not given
  MropeDefaults mrope;
};

/// REQUIRES: rotary_dim even and > 2, theta > 1, factor > 0, original_length > 0 where the kind
/// uses it, low_freq_factor < high_freq_factor; sections, if any, three that sum to rotary_dim / 2.
RopeSpec make_rope(const RopeScaling& scaling, RopeStyle style, int32_t rotary_dim);

/// What read_rope_scaling() knows of the model.
struct RopeDefaults {
  double theta = 10000.0;
  int64_t max_position_embeddings = 0;
  MropeDefaults mrope = {};  ///< mrope_section (or freq_allocation) is read where it has sections
  int32_t rotary_dim = 0;    ///< which they must divide
};

/// Reads rope_theta, rope_scaling, rope_parameters and original_max_position_embeddings of a
/// config, mrope_section and, where time comes last, freq_allocation. Throws Error(kUnsupported)
/// for a rope_type or a key that is not understood and Error(kCorruptFile) for a value out of
/// range.
RopeScaling read_rope_scaling(ConfigReader& config, const RopeDefaults& defaults);

}  // namespace headrace
