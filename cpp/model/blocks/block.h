#pragma once

// A layer is a mixer block, in which rows of a sequence see each other, and a feed-forward block. A
// block adds to the residual, and the next block reads the residual's norm.

#include <array>
#include <cstdint>

#include "backend/contract/backend.h"
#include "model/blocks/modality_rows.h"
#include "model/config/model_config.h"
#include "model/lora/step_loras.h"
#include "model/weights/weight_reader.h"

namespace headrace {

class Carver;

/// What all blocks of a decoder use. Must outlive them.
struct BlockContext {
  Backend& backend;
  StepLoras& loras;
  const ModalityRows& modalities;  ///< of the rows that blocks get
  NormSpec norm;
  bool has_ranks = false;   ///< other ranks add to the residual, too: all parts are summed first
  TensorView lora_scratch;  ///< for Backend::lora
};

/// The rows of a step between blocks: T rows, H hidden size.
struct StepRows {
  TensorView residual;  ///< [T, H]
  TensorView normed;    ///< [T, H] the residual's norm, for the next block
  TensorView input;     ///< [T, H] what a block reads: normed, or the residual itself
  TensorView delta;     ///< [T, H] scratch for what a block adds to the residual
  TensorView mixed;     ///< [T, Mixer::mixed_columns] result of Mixer::mix
  /// [T, rotary_dim] f32, of rope_table(): one of each of ModelConfig::ropes.
  std::array<TensorView, kMaxRopes> ropes;
  TensorView per_layer;  ///< [T, L P] what layers get beside the residual; or [T, 0]

  int64_t rows() const noexcept { return residual.rows(); }
};

/// What comes after a block's own work.
struct Tail {
  NormView post_norm;  ///< [H] of the block's result, before it is added; empty: none
  float scale = 1.0f;  ///< of that, then
  NormView sum_norm;   ///< [H] of the sum, which becomes the residual (BERT); empty: none
  /// [H] of the residual, for the next block. Empty: StepRows::normed stays as it is, because the
  /// next block reads the residual itself, or what this one has read.
  NormView norm;
  const PackedWeight& weight;  ///< the next block's first weight, for Backend::expect
};

/// Sizes of the largest step.
struct StepLimits {
  int64_t rows = 0;
  DType activation = DType::kF32;
  bool loras = false;  ///< whether rows may use adapters
};

/// A block with its weights and its scratch memory.
class Block {
 public:
  virtual ~Block() = default;
  /// The weight that the block reads first.
  virtual const PackedWeight& first_weight() const = 0;
  /// Takes its scratch. Blocks run one after the other, so they may share scratch.
  virtual void place(const StepLimits& limits, Carver& carver) = 0;
  /// residual += the block's result for the step's rows, as the tail says; normed = norm(residual).
  /// Uses the first rows() rows of its scratch.
  virtual void add(const BlockContext& context, const StepRows& step, const Tail& tail) = 0;
};

class FeedForward : public Block {};

class Mixer : public Block {
 public:
  /// mixed = the result of mixing the input's rows with other rows of their sequences. Writes their
  /// new keys and values (or whatever the mixer keeps). add() projects `mixed`, for all rows or for
  /// some.
  virtual void mix(const BlockContext& context, const StepRows& step, KvCache& cache) = 0;
  /// mix() for rows that only later rows will see: `mixed` isn't used.
  virtual void write(const BlockContext& context, const StepRows& step, KvCache& cache) {
    mix(context, step, cache);
  }
};

}  // namespace headrace
