#pragma once

#include <cstdint>
#include <memory>

#include "model/blocks/block.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// A layer with its weights.
struct Layer {
  DeviceNorm mixer_norm, feed_forward_norm, mixer_post_norm, feed_forward_post_norm;
  DeviceNorm mixer_sum_norm, feed_forward_sum_norm, last_post_norm;
  float mixer_scale = 1.0f, feed_forward_scale = 1.0f;
  bool parallel = false;
  int64_t mixed_columns = 0;                  ///< MixerSources::mixed_columns
  std::unique_ptr<Mixer> mixer;               ///< null: it has none
  std::unique_ptr<FeedForward> feed_forward;  ///< likewise
  std::unique_ptr<FeedForward> last;          ///< LayerSources::last
  float scalar = 1.0f;                        ///< of the residual, at last

  /// The norm that its first block reads; may be empty.
  NormView first_norm() const;
  const PackedWeight& first_weight() const;
};

/// `number`: the layer's number in the cache's layout. `backend`: the reader's.
Layer load_layer(Backend& backend, WeightReader& reader, const LayerSources& sources,
                 int32_t number);

/// Mixer::mix, if the layer has a mixer. REQUIRES: normed is the rows' first_norm(), if it has one.
void mix_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
               KvCache& cache);

/// The rows as the layer's mixer reads them, with its own columns of StepRows::mixed. REQUIRES:
/// normed is their mixer_norm, if it has one.
StepRows mixer_rows(const Layer& layer, const StepRows& step);

/// What of a layer comes behind its mixing of rows. `next_norm` and `next_weight` as in Tail.
void finish_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
                  const NormView& next_norm, const PackedWeight& next_weight);

}  // namespace headrace
