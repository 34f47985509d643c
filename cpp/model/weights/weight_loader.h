#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract/backend.h"
#include "model/checkpoint/checkpoint.h"
#include "model/sources/sources.h"
#include "model/sources/weight_slice.h"
#include "model/weights/dummy_weights.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Turns sources into packed weights, from a checkpoint or from pseudo-random numbers. Each
/// checkpoint page is read once and let go after it is packed. Uses the backend's thread.
class WeightLoader final : public WeightReader {
 public:
  /// `checkpoint` null: pseudo-random weights of the given spread, which are not those of the whole
  /// where the sources are slices. `between`: see WeightSpec. All must outlive the loader.
  WeightLoader(Backend& backend, const Checkpoint* checkpoint, DType storage, float dummy_spread,
               const std::function<void()>* between = nullptr);

  /// Throws what Backend::pack_weight throws, naming the tensor, and what
  /// Checkpoint::check_unchanged throws.
  std::unique_ptr<PackedWeight> matrix(const MatrixSource& source) override;
  DeviceVector vector(const VectorSource& source) override;
  size_t adopted_bytes() const override { return adopted_bytes_; }

 private:
  /// A table that stays in its file; null: it can't, as it is stored.
  std::unique_ptr<PackedWeight> adopt(const MatrixSource& source);
  std::vector<WeightPart> stored_parts(const MatrixSource& source) const;
  std::vector<float> stored_numbers(const VectorSource& source) const;
  const CheckpointTensor& stored(const std::string& name) const;
  void drop(const std::vector<StoredPart>& parts) const;

  Backend& backend_;
  const Checkpoint* checkpoint_;
  DType storage_;
  const std::function<void()>* between_;
  DummyWeights dummy_;
  size_t adopted_bytes_ = 0;
};

}  // namespace headrace
