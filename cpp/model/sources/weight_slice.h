#pragma once

// A rank's share of a weight that several devices divide: some features of a matrix (each rank
// computes other outputs), or some inputs (a sum over the ranks follows).

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/contract/backend.h"
#include "model/sources/sources.h"

namespace headrace {

/// The rank's share of [0, size). Shares are equal if `count` divides the range into whole units;
/// otherwise they are as nearly equal as units allow, with at least `unit` and preferably 64. The
/// last share ends at `size`. Throws Error(kUnsupported) that names `what` if there are fewer units
/// than ranks.
SourceRange share_range(int64_t size, int64_t unit, const RankPlace& place, std::string_view what);

/// The key/value heads of a rank. Throws Error(kUnsupported) unless the number of ranks divides
/// `heads`, and either the number of ranks divides `kv_heads` or `kv_heads` divides the number of
/// ranks.
SourceRange share_kv_heads(int64_t heads, int64_t kv_heads, const RankPlace& place);

/// The rank's share of a matrix's inputs: whole quantization groups, unless the matrix has its own
/// order of inputs. Throws likewise.
SourceRange input_range(const MatrixSource& matrix, const RankPlace& place, std::string_view what);

/// Turn the source into the rank's: these features of each expert, these inputs, or these experts.
void slice_rows(MatrixSource& source, std::vector<SourceRange> rows);
/// Throws Error(kUnsupported) that names the tensor if inputs have their own order.
void slice_inputs(MatrixSource& source, const SourceRange& inputs);
void slice_experts(MatrixSource& source, const SourceRange& experts);

/// Divides a linear whose inputs come from the ranks; this rank has `inputs`, and its result is a
/// part of a sum. With MatrixSource::whole_inputs, the rank has some features of all inputs
/// instead, and gathers. Throws like slice_inputs(), and Error(kUnsupported) for fewer features
/// than ranks.
void share_inputs(LinearSource& linear, const SourceRange& inputs, const RankPlace& place);

/// Parts, with readers of parts that are codes or numbers.
struct SlicedParts {
  std::vector<WeightPart> parts;
  std::vector<std::unique_ptr<WeightCodes>> codes;
  std::vector<std::unique_ptr<WeightNumbers>> numbers;
};

/// The slice's part of `parts`, which are the source's parts in its order and must outlive the
/// result. Only the slice's own bytes are read. A whole source has all parts.
SlicedParts slice_parts(const MatrixSource& source, std::span<const WeightPart> parts);

/// The slice's runs of numbers in part `index` of a vector: where each begins, and how many numbers
/// it has.
std::vector<SourceRange> own_numbers(const VectorSource& source, size_t index);

}  // namespace headrace
