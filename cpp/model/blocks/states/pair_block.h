#pragma once

#include <cstdint>
#include <memory>

#include "model/config/state_config.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Two mixers that read the same rows, whose results are both added (Falcon-H1): attention, which
/// keeps keys and values, and a mixer that keeps a state. What each reads and gives has factors.
/// REQUIRES: no norm comes behind the layer's mixer (Tail::post_norm).
struct PairSources final : MixerSources {
  struct Branch {
    std::unique_ptr<MixerSources> mixer;
    BranchScales scales;
  };
  Branch attention, scan;

  std::vector<MatrixSource*> matrices() override;
  std::vector<VectorSource*> vectors() override;
  void share(const RankPlace& place) override;
  PagedRows cache_rows() const override { return attention.mixer->cache_rows(); }
  StateRows state() const override { return scan.mixer->state(); }
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override {
    return attention.mixer->mixed_columns() + scan.mixer->mixed_columns();
  }
};

}  // namespace headrace
