#pragma once

// Keys of config.json that families with pictures share.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config_reader.h"
#include "model/config/vision_config.h"

namespace headrace {

/// Largest numbers accepted.
inline constexpr int64_t kMaxTowerDepth = 1024;
inline constexpr int64_t kMaxTowerWidth = 1 << 16;
inline constexpr int64_t kMaxTowerMlp = 1 << 20;
inline constexpr int64_t kMaxPatchSize = 256;
inline constexpr int64_t kMaxMergeSize = 16;
inline constexpr int64_t kMaxPositionSide = 1024;
inline constexpr int64_t kMaxMlpRatio = 64;

/// The names of keys that differ between families, with what is taken where they are missing.
struct TowerKeys {
  std::string_view width = "hidden_size";
  int32_t default_width = 1280;
  std::string_view depth = "depth";
  int32_t default_depth = 32;
  std::string_view heads = "num_heads";
  int32_t default_heads = 16;
  int32_t default_patch = 14;
  bool rope = true;
};

/// Width, depth, heads and patch size. Throws Error(kCorruptFile) for a width that the heads don't
/// divide, Error(kUnsupported) for heads of a size that attention doesn't take.
void read_tower_shape(ConfigReader& reader, const TowerKeys& keys, VisionConfig& out);

/// A number that newer files write as a list of `count` equal ones.
int32_t read_side(ConfigReader& reader, std::string_view key, int32_t fallback, int64_t max,
                  size_t count = 2);

/// Columns of an MLP.
int32_t read_tower_width(ConfigReader& reader, std::string_view key, int32_t fallback);

/// Throws Error(kCorruptFile) unless the tower gives rows of the decoder's size.
void require_out_size(ConfigReader& reader, std::string_view key, int32_t fallback,
                      int32_t hidden_size);

/// hidden_act.
Activation read_activation(ConfigReader& reader, const std::string& fallback);

/// Distinct numbers of blocks, below `depth`.
std::vector<int32_t> read_blocks(ConfigReader& reader, std::string_view key,
                                 const std::vector<int32_t>& fallback, int32_t depth);

/// Keys of all towers that don't change what is computed, with `more`.
std::vector<std::string_view> harmless_tower_keys(const std::vector<std::string_view>& more);

/// Names of tokens, and what else stands beside text_config and vision_config.
std::vector<std::string_view> harmless_picture_keys(const std::vector<std::string_view>& more);

}  // namespace headrace
