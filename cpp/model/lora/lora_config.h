#pragma once

// adapter_config.json as PEFT writes it for LoRA.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

inline constexpr int32_t kMaxLoras = 256;      ///< adapters loaded at once
inline constexpr int32_t kMaxLoraRank = 4096;  ///< of one module

struct LoraConfig {
  /// A number for the modules whose dotted path is `name` or, unless `whole`, ends in ".name".
  struct Pattern {
    std::string name;
    bool whole = false;
    double value = 0.0;
  };

  int32_t r = 8;
  double alpha = 8.0;
  bool rslora = false;                      ///< scale is alpha / sqrt(rank), not alpha / rank
  std::vector<Pattern> ranks, alphas;       ///< instead of r and alpha
  std::vector<std::string> target_modules;  ///< names as in Pattern; empty: any
  std::vector<int32_t> layers;              ///< empty: any

  // `module` is a path such as "model.layers.0.self_attn.q_proj". Throws Error(kUnsupported) if
  // patterns with different values match it: which of them counts depends on an order that the
  // parsed file has lost.
  int32_t rank_of(std::string_view module) const;
  float scale_of(std::string_view module) const;
  bool targets(std::string_view module, int32_t layer) const;
};

/// Throws Error(kCorruptFile) for what is malformed and Error(kUnsupported) for what this build
/// doesn't compute, both naming key and value. A key that may change what is computed and isn't
/// known is among the latter.
LoraConfig parse_lora_config(std::string_view text);

}  // namespace headrace
