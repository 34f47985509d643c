#pragma once

// The tensors that a block reads from a checkpoint. A family lists them, and a decoder makes the
// block from them.

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/contract/cache_layout.h"
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
  /// The block's matrices and vectors, in the order in which it reads them.
  virtual std::vector<MatrixSource*> matrices() = 0;
  virtual std::vector<VectorSource*> vectors() = 0;
  /// Turns the sources into those of one rank. The sum of what the ranks' blocks add to the
  /// residual equals what the whole block adds. Throws Error(kUnsupported) if the block can't be
  /// divided so.
  virtual void share(const RankPlace& place) = 0;
  /// Takes the scratch of Block::place(), to compute its size.
  virtual void measure(const StepLimits& limits, Carver& carver) const = 0;
};

class FeedForwardSources : public BlockSources {
 public:
  /// Call it when codes are attached. If another matrix can produce a matrix's inputs in the
  /// matrix's own order, it does so from now on (fold_order.h).
  virtual void fold_orders() {}
  virtual std::unique_ptr<FeedForward> load(WeightReader& reader) const = 0;
};

class MixerSources : public BlockSources {
 public:
  /// What it keeps of each token. The cache's dtype is not its own. No heads: nothing.
  virtual PagedRows cache_rows() const { return {}; }
  /// The same of the whole model's layer, of which a rank may have a part.
  virtual PagedRows whole_cache_rows() const { return cache_rows(); }
  /// The layer whose rows it reads, keeping none itself; -1: none.
  virtual int32_t reads_rows_of() const { return -1; }
  /// What it keeps of each sequence besides. Empty: nothing.
  virtual StateRows state() const { return {}; }
  /// `layer`: the layer's number in the cache's layout.
  virtual std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const = 0;
  /// Columns of StepRows::mixed.
  virtual int64_t mixed_columns() const = 0;
};

}  // namespace headrace
