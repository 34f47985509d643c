#pragma once

// A rank's share of a weight that several devices hold together: of a matrix some of its features
// (each rank gives other outputs) or some of its inputs (a sum over the ranks stands behind it).

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/contract/backend.h"
#include "model/sources/sources.h"

namespace headrace {

/// The rank's share of [0, size): equal ones where `count` divides it into whole units, else as
/// nearly equal as units allow, of at least `unit` and rather 64. The last one ends at `size`.
/// Throws Error(kUnsupported) naming `what` if there is not a unit for each rank.
SourceRange share_range(int64_t size, int64_t unit, const RankPlace& place, std::string_view what);

/// Of the key/value heads those of a rank. Throws Error(kUnsupported) unless the ranks can share
/// `heads` equally, and one of the two numbers of ranks and of key/value heads divides the other.
SourceRange share_kv_heads(int64_t heads, int64_t kv_heads, const RankPlace& place);

/// The source becomes the rank's: those features of each expert's, those inputs, or those experts.
void slice_rows(MatrixSource& source, std::vector<SourceRange> rows);
/// Throws Error(kUnsupported) naming the tensor where inputs have an order of their own.
void slice_inputs(MatrixSource& source, const SourceRange& inputs);
void slice_experts(MatrixSource& source, const SourceRange& experts);

/// Of a linear whose inputs the ranks make, this one those `inputs`: its part of what they sum up.
/// Where MatrixSource::whole_inputs, it has some features of all inputs instead, and gathers.
/// Throws as slice_inputs() does, and Error(kUnsupported) for fewer features than ranks.
void share_inputs(LinearSource& linear, const SourceRange& inputs, const RankPlace& place);

/// Parts, and what reads those that are codes or numbers.
struct SlicedParts {
  std::vector<WeightPart> parts;
  std::vector<std::unique_ptr<WeightCodes>> codes;
  std::vector<std::unique_ptr<WeightNumbers>> numbers;
};

/// What a slice has of `parts`, which are those of `source` in its order and must outlive it. Only
/// its own bytes are read from it. All of them of a source that is whole.
SlicedParts slice_parts(const MatrixSource& source, std::span<const WeightPart> parts);

/// Of part `index` of a vector: where its runs of numbers begin, and how many each has.
std::vector<SourceRange> own_numbers(const VectorSource& source, size_t index);

}  // namespace headrace
