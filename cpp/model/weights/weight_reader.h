#pragma once

#include <memory>

#include "backend/contract/backend.h"
#include "model/sources/sources.h"

namespace headrace {

/// A vector in the backend's memory. An empty one has a view without data.
struct DeviceVector {
  TensorView view;
  Backend::Buffer buffer;
  size_t bytes() const noexcept {
    return static_cast<size_t>(view.shape.elements()) * dtype_size(view.dtype);
  }
};

/// A norm's weights, and the bias that a layer norm may have. Empty: there is none.
struct NormView {
  TensorView weight, bias;

  bool empty() const noexcept { return weight.data == nullptr; }
};

struct DeviceNorm {
  DeviceVector weight, bias;

  bool empty() const noexcept { return weight.view.data == nullptr; }
  NormView view() const { return {weight.view, bias.view}; }
};

/// Where a decoder's weights come from. Uses the backend's thread.
class WeightReader {
 public:
  virtual ~WeightReader() = default;
  /// Null for an empty source.
  virtual std::unique_ptr<PackedWeight> matrix(const MatrixSource& source) = 0;
  virtual DeviceVector vector(const VectorSource& source) = 0;
  DeviceNorm norm(const NormSource& source) { return {vector(source.weight), vector(source.bias)}; }
  /// Bytes of what was read that lie in memory the backend adopted.
  virtual size_t adopted_bytes() const { return 0; }
};

}  // namespace headrace
