#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/contract/state_ops.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// A short gated convolution over time (LFM2): out(c * conv(b * x)) of b‖c‖x = in(row). It keeps
/// the last products b * x. C channels.
struct ConvSources final : MixerSources {
  ConvSpec conv;
  LinearSource in;         ///< [3 C, H]: b, c, x
  VectorSource weight;     ///< [kernel, C], of list_taps()
  VectorSource conv_bias;  ///< [C]; may be empty
  LinearSource out;        ///< [H, C]

  std::vector<MatrixSource*> matrices() override { return {&in.matrix, &out.matrix}; }
  std::vector<VectorSource*> vectors() override {
    return {&weight, &conv_bias, &in.bias, &out.bias};
  }
  /// Divides channels among the ranks.
  void share(const RankPlace& place) override;
  StateRows state() const override {
    return {.channels = conv.channels, .window = conv.kernel - 1};
  }
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override { return conv.channels; }
};

/// A convolution's weights [kernel, channels], of a tensor [channels, 1, kernel].
VectorSource list_taps(std::string name, const std::string& tensor, int64_t channels,
                       int64_t kernel);

/// A rank's channels of such weights, of all `num_channels`.
std::vector<SourceRange> tap_ranges(const std::vector<SourceRange>& channels, int64_t num_channels,
                                    int64_t kernel);

/// The matrix that the vector of a convolution's weights is.
TensorView tap_matrix(const DeviceVector& weight, const ConvSpec& spec);

}  // namespace headrace
