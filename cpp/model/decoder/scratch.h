#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/blocks/block.h"
#include "model/blocks/carver.h"
#include "model/decoder/decoder.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// Memory for the activations between blocks, for a step of T rows, S of which want logits. The
/// blocks' own scratch comes after it. H hidden size, M MixerSources::mixed_columns, V vocabulary.
struct Scratch {
  StepRows rows;
  TensorView lora;              ///< [T, ranks] f32 for Backend::lora; without adapters [0, ranks]
  TensorView chosen_residual;   ///< [S, H] rows that want logits
  TensorView chosen_mixed;      ///< [S, M]
  TensorView chosen_normed;     ///< [S, H] where ScratchSizes::last_normed; else [0, H]
  TensorView chosen_per_layer;  ///< [S, L P]; without such inputs [S, 0]
  TensorView logits;            ///< [S, V] f32
};

struct ScratchSizes {
  StepLimits limits;
  int64_t logit_rows = 0, hidden = 0, mixed = 0, vocab = 0, lora = 0;
  std::array<int64_t, kMaxRopes> ropes{};
  /// The feed-forward block of the layer that chosen rows begin with reads rows normed before: what
  /// its mixer read, or what it has instead of one.
  bool last_normed = false;
  int64_t per_layer = 0;  ///< L P
  int64_t own_vocab = 0;  ///< width of a rank's part of the logits; 0: there are no ranks
  int64_t kept = 0;       ///< rows that an MTP block keeps
};

/// Layers up to the last one that keeps something: of those behind it only rows matter whose
/// results are wanted.
size_t count_keeping(const ModelSources& sources);

ScratchSizes scratch_sizes(const ModelConfig& config, const ModelSources& sources,
                           const DecoderOptions& options, DType activation);

Scratch lay_out_scratch(const ScratchSizes& sizes, Carver& carver);

/// The first `count` of the step's rows.
StepRows first_rows(const StepRows& step, int64_t count);

/// Copies residual, mixed and chosen_normed's rows of `all`. The result has the copies, and the
/// first rows of the other matrices.
StepRows choose_rows(Backend& backend, const Scratch& scratch, const StepRows& all,
                     std::span<const int32_t> rows);

/// The step's tables of the model's rotary embeddings.
void make_rope_tables(Backend& backend, const ModelConfig& config, const StepRows& step);

/// Calls place(block) for the mixers and feed-forward blocks of all layers. All blocks share the
/// carver's next memory, because they run one after the other. Returns the carver's offset at the
/// end of this memory. `more`: null, or an additional layer.
template <class Layers, class Layer, class Place>
size_t share_scratch(const Layers& layers, Layer* more, Carver& carver, const Place& place) {
  const size_t begin = carver.offset();
  size_t end = begin;
  const auto place_one = [&](auto& block) {
    carver.move_to(begin);
    place(block);
    end = std::max(end, carver.offset());
  };
  const auto place_layer = [&](auto& layer) {
    if (layer.mixer != nullptr) place_one(*layer.mixer);
    if (layer.feed_forward != nullptr) place_one(*layer.feed_forward);
    if (layer.last != nullptr) place_one(*layer.last);
  };
  for (const auto& layer : layers) place_layer(layer);
  if (more != nullptr) place_layer(*more);
  return end;
}

}  // namespace headrace
