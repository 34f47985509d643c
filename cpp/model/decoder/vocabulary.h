#pragma once

#include <cstdint>
#include <memory>

#include "backend/contract/backend.h"
#include "model/blocks/carver.h"
#include "model/decoder/scratch.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Embedding and head, which lead from tokens to rows and back; or one rank's tokens of them.
class Vocabulary {
 public:
  /// The config is the whole model's. Reads the embedding. The head is read later, because it comes
  /// after the layers.
  Vocabulary(WeightReader& reader, const ModelSources& sources, const ModelConfig& config,
             const RankPlace& place);
  void read_head(WeightReader& reader, const ModelSources& sources);

  /// Takes its scratch, for the largest number of logit rows.
  void place(const ScratchSizes& sizes, Carver& carver);
  static void measure(const ScratchSizes& sizes, Carver& carver);

  /// out [T, H] = the embeddings of the step's tokens. With several ranks, it is this rank's part
  /// of them. finish_embedding() completes and scales it.
  void embed(Backend& backend, const TensorView& out) const;
  void finish_embedding(Backend& backend, const TensorView& out) const;
  /// out [S, V] f32 = normed [S, H] . head^T, scaled and capped. With several ranks, only the first
  /// rank gets all columns: the others' `out` is [S, 0].
  void read_logits(Backend& backend, const TensorView& normed, const TensorView& out) const;

  const PackedWeight& output_matrix() const { return head_ ? *head_ : *embedding_; }
  /// Bytes of the embedding, unless it is also the head.
  size_t idle_bytes() const { return head_ ? embedding_->bytes() : 0; }

 private:
  RankPlace place_;
  int64_t size_;  // V
  float embedding_scale_, logit_scale_, logit_cap_;
  SourceRange tokens_;                              // this rank's tokens
  std::unique_ptr<PackedWeight> embedding_, head_;  // no head: the embedding is tied
  TensorView part_;  // [S, tokens_] this rank's logits; without ranks [0, 0]
};

}  // namespace headrace
