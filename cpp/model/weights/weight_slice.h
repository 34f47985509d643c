#pragma once

// A device's share of a weight that several devices hold together.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/contract/backend.h"
#include "model/weights/sources.h"

namespace headrace {

/// Device `index` of `count`.
struct WeightShare {
  int32_t index = 0;
  int32_t count = 1;
};

/// Parts, and what reads those that are codes or numbers.
struct SlicedParts {
  std::vector<WeightPart> parts;
  std::vector<std::unique_ptr<WeightCodes>> codes;
  std::vector<std::unique_ptr<WeightNumbers>> numbers;
};

/// What a share holds of `parts`, which are those of `source` in its order and must outlive it: of
/// each piece of a part its features (SliceBy::kRows), or of each part its inputs (kColumns); all
/// for kNone. Only the share's own bytes are read from it. Throws Error(kUnsupported) naming the
/// tensor where a piece's features, or the inputs, can't be divided into `count` equal shares, of
/// whole groups of quantized weights, or where groups are of inputs in an order of their own.
SlicedParts slice_parts(const MatrixSource& source, std::span<const WeightPart> parts,
                        const WeightShare& share);

/// Likewise of a stored vector: where its runs of numbers begin, and how many each has.
std::vector<std::pair<int64_t, int64_t>> share_of_vector(const VectorSource& source,
                                                         const StoredPart& part,
                                                         const WeightShare& share);

}  // namespace headrace
