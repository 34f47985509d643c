#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/cache/cache_writer.h"
#include "model/decoder/decoder.h"
#include "model/load/load_lora_adapter.h"
#include "model/vision/vision_tower.h"

namespace headrace::internal {

/// A model in memory, or one rank's part of it.
struct LoadedWeights {
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<VisionTower> tower;   ///< null: the model has none
  std::string packed_file;              ///< that they come from, or ""
  std::vector<AdaptedLinear> linears;   ///< that adapters may change
  std::unique_ptr<CacheWriter> writer;  ///< null: nothing to write. To be destroyed first
};

}  // namespace headrace::internal
