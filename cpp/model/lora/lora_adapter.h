#pragma once

// LoRA adapters: PEFT folders (adapter_config.json, adapter_model.safetensors) as packed weights.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/config/model_config.h"
#include "model/weights/sources.h"

namespace headrace {

struct ModelSources;
struct RankPlace;

/// A linear that adapters may change, as a rank has it.
struct AdaptedLinear {
  int64_t n = 0, k = 0;
  std::shared_ptr<const MatrixSlice> slice = {};  ///< null: all of it
};

/// Those of a rank's sources, by number (MatrixSource::site).
std::vector<AdaptedLinear> list_adapted(const ModelSources& sources);

/// A rank that has its part of each adapter.
struct LoraPlace {
  std::shared_ptr<Backend> backend;
  std::vector<AdaptedLinear> linears;
};

/// An adapter for one model. Immutable; keeps its backend alive.
class LoraAdapter {
 public:
  /// `linears`: what it adds to each of the model's linears (MatrixSource::site); null: nothing.
  LoraAdapter(std::shared_ptr<Backend> backend, std::vector<std::unique_ptr<PackedLora>> linears,
              int32_t rank, int32_t num_modules);

  /// What it adds to the linear of that number; null: nothing.
  const PackedLora* linear(int32_t site) const { return linears_[static_cast<size_t>(site)].get(); }
  size_t num_linears() const noexcept { return linears_.size(); }
  int32_t rank() const noexcept { return rank_; }  ///< the largest of its modules'
  int32_t num_modules() const noexcept { return num_modules_; }
  size_t bytes() const noexcept { return bytes_; }  ///< of all ranks

  /// The same adapter for the next rank of a model that several share.
  void add_rank(std::unique_ptr<const LoraAdapter> next);
  /// That of a rank; of the first this one itself.
  const LoraAdapter& of_rank(size_t rank) const { return rank == 0 ? *this : *others_[rank - 1]; }

 private:
  std::shared_ptr<Backend> backend_;  // first: it must outlive what lives on it
  std::vector<std::unique_ptr<PackedLora>> linears_;
  int32_t rank_, num_modules_;
  size_t bytes_ = 0;
  std::vector<std::unique_ptr<const LoraAdapter>> others_;  ///< of the ranks behind the first
};

/// Reads and packs a folder on the calling thread; any thread, also while the model computes.
/// Everything is checked before the first tensor is packed. Throws Error, naming file and tensor or
/// key: kNotFound for files that are missing, kCorruptFile for what breaks its format or doesn't
/// fit the model, kUnsupported for what this build doesn't compute, kLimitExceeded for a rank above
/// `max_rank`, kOutOfMemory.
std::unique_ptr<const LoraAdapter> load_lora_adapter(std::shared_ptr<Backend> backend,
                                                     const ModelConfig& config, DType storage,
                                                     int32_t max_rank,
                                                     const std::filesystem::path& folder);

/// The same for the ranks of a model, by index: each has what changes its part of the linears.
/// `config` is the whole model's.
std::unique_ptr<const LoraAdapter> load_lora_adapter(std::span<const LoraPlace> ranks,
                                                     const ModelConfig& config, DType storage,
                                                     int32_t max_rank,
                                                     const std::filesystem::path& folder);

/// What an adapter of that rank on every linear takes on `place`, up to layout padding.
size_t plan_lora_bytes(const ModelConfig& config, DType storage, int32_t rank,
                       const RankPlace& place = {});

}  // namespace headrace
