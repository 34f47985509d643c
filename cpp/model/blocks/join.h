#pragma once

// How blocks' results get into the residual, and what the next block reads of it.

#include "model/blocks/block.h"
#include "model/blocks/linear.h"

namespace headrace {

/// out = the model's norm of x, per row. x, out [T, H]; norm [H]. out may be x.
void run_norm(const BlockContext& context, const TensorView& x, const NormView& norm,
              const TensorView& out);

/// What a rank has in StepRows::delta.
enum class DeltaPart : uint8_t {
  kOwn,    ///< its part of a sum over the ranks
  kWhole,  ///< all of it
};

/// delta = the tail's norm of delta, times its scale; residual += delta; residual = the tail's norm
/// of the sum; normed = the next block's norm of the residual. What the model hasn't is left out.
/// With nothing but an RMS norm for the next block this is one op.
void join(const BlockContext& context, const StepRows& step, const Tail& tail,
          DeltaPart part = DeltaPart::kOwn);

/// The same of delta = linear(x).
void join(const BlockContext& context, const Linear& linear, const TensorView& x,
          const StepRows& step, const Tail& tail);

}  // namespace headrace
