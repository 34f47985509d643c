#pragma once

#include <cstdint>
#include <memory>

#include "backend/contract/backend.h"
#include "model/blocks/carver.h"
#include "model/decoder/scratch.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Embedding and head, or one rank's tokens of them: what leads from tokens to rows and back.
class Vocabulary {
 public:
  /// V of the whole. Reads the embedding; the head is read later, as it lies behind the layers.
  Vocabulary(WeightReader& reader, const ModelSources& sources, int64_t size,
             const RankPlace& place);
  void read_head(WeightReader& reader, const ModelSources& sources);

  /// Takes its scratch, for as many rows of logits as there are at once.
  void place(const ScratchSizes& sizes, Carver& carver);
  static void measure(const ScratchSizes& sizes, Carver& carver);

  /// out [T, H] = the embeddings of the step's tokens. Where there are ranks, what this one has of
  /// them: finish_embedding() makes them whole.
  void embed(Backend& backend, const TensorView& out) const;
  void finish_embedding(Backend& backend, const TensorView& out) const;
  /// out [S, V] f32 = normed [S, H] . head^T. Of ranks the first alone has it whole: the others'
  /// `out` is [S, 0].
  void read_logits(Backend& backend, const TensorView& normed, const TensorView& out) const;

  const PackedWeight& output_matrix() const { return head_ ? *head_ : *embedding_; }
  /// Of the embedding, unless it is the head, too.
  size_t idle_bytes() const { return head_ ? embedding_->bytes() : 0; }

 private:
  RankPlace place_;
  int64_t size_;                                    // V
  SourceRange tokens_;                              // that it has
  std::unique_ptr<PackedWeight> embedding_, head_;  // no head: the embedding is tied
  TensorView part_;  // [S, tokens_] this rank's logits; without ranks [0, 0]
};

}  // namespace headrace
