#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "model/sources/sources.h"

namespace headrace {

/// Deterministic pseudo-random weights by tensor name: matrices and biases uniform with the given
/// standard deviation, norms 1. All matrices are cut from one small pool of numbers, so that a
/// model of any size costs a few MiB of host memory. Those that are MXFP4 are uniform codes.
class DummyWeights {
 public:
  explicit DummyWeights(float spread) : spread_(spread) {}

  /// Parts that point into this: valid until the next call.
  std::vector<WeightPart> parts(const MatrixSource& source);
  std::vector<float> numbers(const VectorSource& source);

 private:
  void fill_pool(size_t size);
  std::vector<WeightPart> float4_parts(const MatrixSource& source);

  float spread_;
  std::vector<float> pool_;
  std::vector<std::unique_ptr<WeightCodes>> codes_;
};

}  // namespace headrace
