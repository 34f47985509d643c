#pragma once

// From PEFT folders (adapter_config.json, adapter_model.safetensors) to LoRA adapters.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/config/model_config.h"
#include "model/lora/lora_adapter.h"
#include "model/sources/model_sources.h"

namespace headrace {

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
