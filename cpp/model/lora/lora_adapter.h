#pragma once

// LoRA adapters in memory: packed weights.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/contract/backend.h"

namespace headrace {

/// An adapter for one model. Immutable; keeps its backend alive. Without code of its own behind it:
/// the engine's loop knows it, and links no model.
class LoraAdapter {
 public:
  /// `linears`: what it adds to each of the model's linears (MatrixSource::site); null: nothing.
  LoraAdapter(std::shared_ptr<Backend> backend, std::vector<std::unique_ptr<PackedLora>> linears,
              int32_t rank, int32_t num_modules)
      : backend_(std::move(backend)),
        linears_(std::move(linears)),
        rank_(rank),
        num_modules_(num_modules) {
    for (const auto& packed : linears_) {
      if (packed != nullptr) bytes_ += packed->bytes();
    }
  }

  /// What it adds to the linear of that number; null: nothing.
  const PackedLora* linear(int32_t site) const { return linears_[static_cast<size_t>(site)].get(); }
  int32_t rank() const noexcept { return rank_; }  ///< the largest of its modules'
  int32_t num_modules() const noexcept { return num_modules_; }
  size_t bytes() const noexcept { return bytes_; }  ///< of all ranks

  /// The same adapter for the next rank of a model that several share.
  void add_rank(std::unique_ptr<const LoraAdapter> next) {
    bytes_ += next->bytes();
    others_.push_back(std::move(next));
  }
  /// That of a rank; of the first this one itself.
  const LoraAdapter& of_rank(size_t rank) const { return rank == 0 ? *this : *others_[rank - 1]; }

 private:
  std::shared_ptr<Backend> backend_;  // first: it must outlive what lives on it
  std::vector<std::unique_ptr<PackedLora>> linears_;
  int32_t rank_, num_modules_;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<const LoraAdapter>> others_;  ///< of the ranks behind the first
};

}  // namespace headrace
