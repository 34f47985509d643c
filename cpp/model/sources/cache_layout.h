#pragma once

// What a model's layers keep of each sequence, as the mixers say (MixerSources::cache_rows), and in
// which groups (CacheLayout).

#include <cstdint>
#include <vector>

#include "backend/contract/cache_layout.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// By layer, with the MTP block's behind the others. Of any dtype.
std::vector<PagedRows> list_cache_rows(const ModelSources& sources);

struct CacheOptions {
  int32_t block_size = 64;
  DType dtype = DType::kF32;
  /// Layers with windows below it are groups of their own; the others keep all rows. Those of a
  /// window as long as the longest sequence have nothing to give back.
  int32_t windows_below = 0;
};

/// REQUIRES: layers, whose rows differ in nothing but the window.
CacheLayout make_cache_layout(std::vector<PagedRows> layers, const CacheOptions& options);

}  // namespace headrace
