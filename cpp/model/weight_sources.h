#pragma once

// Which stored tensors make up which weight of a decoder: all tensor names are here.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/quantization.h"
#include "model/stored_codes.h"

namespace headrace {

/// A stored tensor that gives `n` output features of a matrix or `n` numbers of a vector.
struct StoredPart {
  std::string name;
  int64_t n = 0;
  /// What the checkpoint holds instead of such a tensor, if it comes quantized (stored_layers.h).
  std::shared_ptr<const StoredCodes> codes = {};
};

/// A weight matrix [n, k]: stored tensors stacked along n. Empty: the model has none.
struct MatrixSource {
  std::string name;  ///< of the whole, as the decoder calls it: "embedding", "layers.3.qkv", "head"
  std::vector<StoredPart> parts;
  int64_t k = 0;
  bool transposed = false;  ///< stored [k, n] instead of [n, k]
  WeightUse use = WeightUse::kLinear;
  QuantFormat quant = {};  ///< bits == 0: kept in the model's dtype

  bool empty() const noexcept { return parts.empty(); }
  int64_t n() const noexcept;
};

/// Stored vectors, one behind the other. Empty: the model has none.
struct VectorSource {
  std::string name;  ///< likewise: "layers.3.qkv_bias", "final_norm"
  std::vector<StoredPart> parts;
  bool is_norm = false;  ///< a norm's weights, as opposed to a bias

  bool empty() const noexcept { return parts.empty(); }
  int64_t n() const noexcept;
};

struct LayerSources {
  VectorSource input_norm, attention_norm_q, attention_norm_k, mlp_norm;
  MatrixSource qkv, o, gate_up, down;
  VectorSource qkv_bias, o_bias, gate_up_bias, down_bias;

  std::vector<const MatrixSource*> matrices() const;  ///< not empty ones, likewise below
  std::vector<const VectorSource*> vectors() const;
};

struct ModelSources {
  MatrixSource embedding;  ///< [V, H]
  std::vector<LayerSources> layers;
  VectorSource final_norm;
  MatrixSource head;  ///< [V, H]; empty if the embedding serves as head

  std::vector<const MatrixSource*> matrices() const;
  std::vector<const VectorSource*> vectors() const;
};

/// How a checkpoint lays out and names its tensors.
struct TensorNaming {
  CheckpointLayout layout = CheckpointLayout::kTorch;
  std::string prefix = "model.";
};

/// By the names in the checkpoint. Throws Error(kUnsupported) for a layout that this family has
/// not, Error(kNotFound) naming the tensor that should be there.
TensorNaming detect_naming(const ModelConfig& config, const Checkpoint& checkpoint);

/// By the config alone.
TensorNaming likely_naming(const ModelConfig& config);

/// Of a checkpoint that comes quantized, the layers' formats are as likely (stored_layers.h).
ModelSources list_sources(const ModelConfig& config, const TensorNaming& naming,
                          const Quantization& quantization = {});

/// The sources of a checkpoint, checked, with the codes it holds, which point into it. Throws what
/// detect_naming(), attach_codes() and check_sources() throw.
ModelSources checkpoint_sources(const ModelConfig& config, const Checkpoint& checkpoint,
                                const Quantization& quantization);

/// Throws Error(kNotFound) for a tensor that is missing, Error(kCorruptFile) for a wrong shape,
/// naming tensor, expected and found shape, and Error(kUnsupported) for an element type that is
/// no float and for tensors that the model has no place for.
void check_sources(const ModelSources& sources, const Checkpoint& checkpoint);

}  // namespace headrace
