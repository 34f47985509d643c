#pragma once

// LoRA adapters: PEFT folders (adapter_config.json, adapter_model.safetensors) as packed weights.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/model_config.h"

namespace headrace {

/// What an adapter adds to the linears of one layer; null: nothing.
struct LoraLayer {
  std::unique_ptr<PackedLora> qkv, o, gate_up, down;
};

using LoraLinear = std::unique_ptr<PackedLora> LoraLayer::*;

/// An adapter for one model. Immutable; keeps its backend alive.
class LoraAdapter {
 public:
  LoraAdapter(std::shared_ptr<Backend> backend, std::vector<LoraLayer> layers, int32_t rank,
              int32_t num_modules);

  const LoraLayer& layer(size_t index) const { return layers_[index]; }
  size_t num_layers() const noexcept { return layers_.size(); }
  int32_t rank() const noexcept { return rank_; }  ///< the largest of its modules'
  int32_t num_modules() const noexcept { return num_modules_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<Backend> backend_;  // first: it must outlive what lives on it
  std::vector<LoraLayer> layers_;
  int32_t rank_, num_modules_;
  size_t bytes_ = 0;
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

/// What an adapter of that rank on every linear takes, up to layout padding.
size_t plan_lora_bytes(const ModelConfig& config, DType storage, int32_t rank);

}  // namespace headrace
