#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "model/blocks/linear.h"
#include "model/sources/vision_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

struct VitBlock {
  DeviceNorm norm_1, norm_2;
  Linear q, kv, proj, up, down;
};

struct VitMerger {
  DeviceNorm norm;
  bool joins_first = false;
  Linear up, down;
  bool averages = false;
};

struct VitJoin {
  Linear up, down;
  DeviceNorm norm;
};

struct VitResampler {
  VitJoin square, grids;
  Linear out;
  DeviceNorm norm;
};

/// A tower's numbers, as VisionSources lists them.
struct VitWeights {
  Linear patches;
  DeviceVector positions;  ///< [side^2, W], or empty; what the host reads them from if it can
  std::vector<float> position_copy;  ///< else
  std::vector<VitBlock> blocks;
  DeviceNorm last_norm;
  std::vector<VitMerger> mergers;
  std::optional<VitResampler> resampler;
  size_t bytes = 0;

  /// [side^2, W], or null: the tower has none.
  const float* host_positions() const noexcept {
    return position_copy.empty() ? static_cast<const float*>(positions.view.data)
                                 : position_copy.data();
  }
};

/// Throws what the reader throws.
VitWeights load_vit(const VisionSources& sources, WeightReader& reader);

/// Takes what the host must read from a device whose memory it doesn't.
void take_positions(Backend& backend, VitWeights& weights);

}  // namespace headrace
