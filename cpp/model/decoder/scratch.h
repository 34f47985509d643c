#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/blocks/block.h"
#include "model/decoder/carver.h"
#include "model/decoder/decoder.h"
#include "model/weights/weight_sources.h"

namespace headrace {

/// Memory for the activations of one step of T rows, S of which want logits, between blocks. What
/// blocks need for themselves lies behind it.
/// H hidden size, M MixerSources::mixed_columns, V vocabulary.
struct Scratch {
  StepRows rows;
  TensorView lora;             ///< [T, ranks] f32 for Backend::lora; without adapters [0, ranks]
  TensorView chosen_residual;  ///< [S, H] rows that want logits
  TensorView chosen_mixed;     ///< [S, M]
  TensorView logits;           ///< [S, V] f32
};

struct ScratchSizes {
  StepLimits limits;
  int64_t logit_rows = 0, hidden = 0, mixed = 0, rope = 0, vocab = 0, lora = 0;
};

ScratchSizes scratch_sizes(const ModelConfig& config, const ModelSources& sources,
                           const DecoderOptions& options, DType activation);

Scratch lay_out_scratch(const ScratchSizes& sizes, Carver& carver);

/// Calls place(mixer or feed-forward block) for those of all layers. They take the same memory, the
/// carver's next: blocks run one after the other. Returns the bytes up to its end.
template <class Layers, class Place>
size_t share_scratch(const Layers& layers, Carver& carver, const Place& place) {
  const size_t begin = carver.offset();
  size_t end = begin;
  const auto place_one = [&](auto& block) {
    carver.move_to(begin);
    place(block);
    end = std::max(end, carver.offset());
  };
  for (const auto& layer : layers) {
    place_one(*layer.mixer);
    place_one(*layer.feed_forward);
  }
  return end;
}

}  // namespace headrace
