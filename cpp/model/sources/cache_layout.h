#pragma once

// What a model's layers keep of each sequence, as the mixers say (MixerSources::cache_rows and
// state), and in which groups (CacheLayout).

#include <cstdint>
#include <vector>

#include "backend/contract/cache_layout.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// What a layer keeps of a sequence. No heads, and an empty state: nothing of that kind.
struct LayerKeeps {
  PagedRows rows;  ///< of any dtype
  StateRows state;
  /// The layer whose rows it reads, which keeps some; < 0: its own, if it keeps any.
  int32_t reads = -1;
  /// The rows of the whole model's layer, where a rank has a part of them: groups are made by
  /// these, so that all ranks have the same. No heads: they are `rows`.
  PagedRows whole = {};
};

/// By layer, with the MTP block's behind the others.
std::vector<LayerKeeps> list_kept(const ModelSources& sources);

struct CacheOptions {
  int32_t block_size = 64;
  DType dtype = DType::kF32;
  /// Layers with windows below it are groups of their own; the others keep all rows. Those of a
  /// window as long as the longest sequence have nothing to give back.
  int32_t windows_below = 0;
};

/// REQUIRES: layers, one of them with rows.
CacheLayout make_cache_layout(std::vector<LayerKeeps> layers, const CacheOptions& options);

}  // namespace headrace
