#pragma once

// A layer is a mixer block, which lets rows of a sequence see each other, and a feed-forward block.
// Between them is the residual, and its norm, which the next block reads.

#include <cstdint>

#include "backend/contract/backend.h"
#include "model/blocks/modality_rows.h"
#include "model/lora/step_loras.h"

namespace headrace {

class Carver;

/// What all blocks of a decoder use. Outlives them.
struct BlockContext {
  Backend& backend;
  StepLoras& loras;
  const ModalityRows& modalities;  ///< of the rows that blocks are given
  float norm_eps = 1e-6f;
  bool has_ranks = false;   ///< other ranks add to the residual, too: theirs are summed up first
  TensorView lora_scratch;  ///< for Backend::lora
};

/// Rows of a step between blocks. T rows, H hidden size.
struct StepRows {
  TensorView residual;  ///< [T, H]
  TensorView normed;    ///< [T, H] what the next block reads
  TensorView delta;     ///< [T, H] scratch: what a block adds to the residual
  TensorView mixed;     ///< [T, Mixer::mixed_columns] what a mixer has mixed
  TensorView rope;      ///< [T, rotary_dim] f32, of rope_table()

  int64_t rows() const noexcept { return residual.rows(); }
};

/// What comes behind a block.
struct NextBlock {
  const TensorView& norm;      ///< [H]
  const PackedWeight& weight;  ///< that it reads first, for Backend::expect
};

/// Sizes of the largest step.
struct StepLimits {
  int64_t rows = 0;
  DType activation = DType::kF32;
  bool loras = false;  ///< whether rows may use adapters
};

/// A block with its weights and its place in the scratch memory.
class Block {
 public:
  virtual ~Block() = default;
  /// The weight that the block reads first.
  virtual const PackedWeight& first_weight() const = 0;
  /// Takes its scratch. Blocks run one after the other: their scratch may be the same.
  virtual void place(const StepLimits& limits, Carver& carver) = 0;
  /// residual += what the block makes of the step's rows, of which the first rows() of its scratch
  /// are; normed = norm(residual).
  virtual void add(const BlockContext& context, const StepRows& step, const NextBlock& next) = 0;
};

class FeedForward : public Block {};

class Mixer : public Block {
 public:
  /// mixed = what normed's rows give and see of their sequences, whose new keys and values (or
  /// whatever the mixer keeps) it writes. add() projects it, of all rows or of some.
  virtual void mix(const BlockContext& context, const StepRows& step, KvCache& cache) = 0;
  /// mix() of rows that are only there for later ones to see: `mixed` is of no use.
  virtual void write(const BlockContext& context, const StepRows& step, KvCache& cache) {
    mix(context, step, cache);
  }
};

}  // namespace headrace
