#pragma once

// A block that guesses one token further than the model does (multi-token prediction): a layer of
// its own behind the model's last one, with its own keys and values in the same cache.

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

/// u = join [norm(embedding of the token) ; norm(h)], then a decoder layer, the model's final norm
/// and its head. h is what comes out of the final norm.
/// Owns its weights and the rows that it keeps; scratch is the decoder's, between its steps.
class MtpBlock {
 public:
  /// What it has in common with the model. Outlives the block.
  struct Shared {
    const Vocabulary& vocabulary;
    const TensorView& final_norm;
  };

  MtpBlock(const ModelConfig& config, const MtpSources& sources, WeightReader& reader,
           const Shared& shared);

  /// Takes its scratch, and room for `kept` rows. The decoder's `scratch` is what it works in.
  void place(const ScratchSizes& sizes, const Scratch& scratch, Carver& carver);
  /// place()'s memory but for what the layer shares with others.
  static void measure(const ScratchSizes& sizes, Carver& carver);
  Layer& layer() noexcept { return layer_; }

  /// Copies rows of the last step to [first, first + rows.size()) of those kept.
  void keep(Backend& backend, std::span<const int32_t> rows, int64_t first);
  /// Writes keys and values of every row; logits [S, V] f32 of batch.logit_rows. Loses the last
  /// step's rows.
  TensorView run(const BlockContext& context, const MtpStep& step, KvCache& cache);

 private:
  void join_inputs(const BlockContext& context, const MtpStep& step, const StepRows& rows);
  StepRows choose(Backend& backend, const StepRows& all, std::span<const int32_t> rows) const;

  const ModelConfig& config_;
  Shared shared_;
  DeviceVector embedding_norm_, hidden_norm_;
  std::unique_ptr<PackedWeight> join_;
  Layer layer_;
  Scratch scratch_;    // views of the decoder's
  TensorView joined_;  // [T, 2 H]
  TensorView kept_;    // [kept, H]
};

}  // namespace headrace
