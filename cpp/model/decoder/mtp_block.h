#pragma once

// A block that guesses the token after the model's next token (multi-token prediction). It is a
// separate layer after the model's last one, with its own keys and values in the same cache.

#include <cstdint>
#include <memory>
#include <span>

#include "backend/contract/backend.h"
#include "model/blocks/block.h"
#include "model/config/model_config.h"
#include "model/decoder/layer.h"
#include "model/decoder/mtp_step.h"
#include "model/decoder/scratch.h"
#include "model/decoder/vocabulary.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Computes u = join [norm(embedding of the token) ; norm(h)], then a decoder layer, a final norm
/// (its own, or else the model's) and the model's head. h is a row after the final norm. The block
/// owns its weights and its kept rows. It uses the decoder's scratch between the decoder's steps.
class MtpBlock {
 public:
  /// What the block shares with the model, which must outlive the block.
  struct Shared {
    const Vocabulary& vocabulary;
    NormView final_norm;
  };

  MtpBlock(Backend& backend, const ModelConfig& config, const MtpSources& sources,
           WeightReader& reader, const Shared& shared);

  /// Takes the block's own scratch, and room for `kept` rows. The block works in the decoder's
  /// `scratch`.
  void place(const ScratchSizes& sizes, const Scratch& scratch, Carver& carver);
  /// Measures the memory of place(), without the scratch that the layer shares with other layers.
  static void measure(const ScratchSizes& sizes, Carver& carver);
  Layer& layer() noexcept { return layer_; }

  /// Copies rows of the last step to places [first, first + rows.size()) of the kept rows.
  void keep(Backend& backend, std::span<const int32_t> rows, int64_t first);
  /// Writes keys and values of every row, and returns logits [S, V] f32 of batch.logit_rows. The
  /// last step's rows are lost.
  TensorView run(const BlockContext& context, const MtpStep& step, KvCache& cache);

 private:
  void join_inputs(const BlockContext& context, const MtpStep& step, const StepRows& rows);
  StepRows choose(Backend& backend, const StepRows& all, std::span<const int32_t> rows) const;

  const ModelConfig& config_;
  Shared shared_;
  DeviceVector embedding_norm_, hidden_norm_;
  std::unique_ptr<PackedWeight> join_;
  Layer layer_;
  DeviceVector final_norm_;  // empty: the model's
  Scratch scratch_;          // views of the decoder's
  TensorView joined_;        // [T, 2 H]
  TensorView kept_;          // [kept, H]
};

}  // namespace headrace
