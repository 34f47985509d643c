#pragma once

// What a block reads of a checkpoint: a family lists it, a decoder makes the block of it.

#include <cstdint>
#include <memory>
#include <vector>

#include "model/sources/sources.h"

namespace headrace {

class Carver;
class FeedForward;
class Mixer;
class WeightReader;
struct StepLimits;

class BlockSources {
 public:
  virtual ~BlockSources() = default;
  /// Those that the block has, in the order in which it reads them.
  virtual std::vector<MatrixSource*> matrices() = 0;
  virtual std::vector<VectorSource*> vectors() = 0;
  /// The sources become those of one rank: what the ranks' blocks add to the residual is, summed
  /// up, what one block adds. Throws Error(kUnsupported) for what can't be shared so.
  virtual void share(const RankPlace& place) = 0;
  /// Block::place() of the block that it makes, to learn the size.
  virtual void measure(const StepLimits& limits, Carver& carver) const = 0;
};

class FeedForwardSources : public BlockSources {
 public:
  /// Codes are attached: those whose order of inputs another matrix can make do so (fold_order.h).
  virtual void fold_orders() {}
  virtual std::unique_ptr<FeedForward> load(WeightReader& reader) const = 0;
};

class MixerSources : public BlockSources {
 public:
  /// `layer`: its number in the KV cache.
  virtual std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const = 0;
  /// Columns of StepRows::mixed.
  virtual int64_t mixed_columns() const = 0;
};

}  // namespace headrace
