#pragma once

// Writes PEFT adapter folders for tests, and checkpoints with an adapter merged into the weights.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cpp/model/checkpoint_files.h"
#include "model/config/model_config.h"

namespace headrace {

struct AdapterToWrite {
  /// Within each layer, as in HF checkpoints; all layers that have them.
  std::vector<std::string> modules = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};
  int32_t rank = 8;
  double alpha = 16.0;
  bool rslora = false;
  DType dtype = DType::kF32;
  float spread = 0.05f;  ///< numbers are uniform in (-spread, spread)
  uint32_t seed = 1;
  std::string infix;                    ///< ".default" in names like lora_A.default.weight
  std::optional<std::string> prefix{};  ///< of the checkpoint's names; nullopt: the family's first
};

/// What was written for one module [n, k]: scale * B A is what it adds.
struct WrittenModule {
  std::string path;  ///< "model.layers.0.self_attn.q_proj"
  int64_t n = 0, k = 0, rank = 0;
  double scale = 1.0;
  std::vector<float> a, b;  ///< [rank][k], [n][rank]
};

std::vector<WrittenModule> write_adapter(const TempFolder& folder, const ModelConfig& config,
                                         const AdapterToWrite& adapter);

/// The checkpoint of a folder in HF's layout, in float32, with scale * B A added to its weights.
void write_merged(const std::filesystem::path& from, const std::vector<WrittenModule>& modules,
                  const TempFolder& to);

/// The tensors of a written adapter, and its adapter_config.json.
std::vector<TensorToWrite> adapter_tensors(const std::vector<WrittenModule>& modules, DType dtype,
                                           const std::string& infix = "");
std::string adapter_config(const AdapterToWrite& adapter);

}  // namespace headrace
