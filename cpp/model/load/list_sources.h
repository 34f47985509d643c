#pragma once

// The weights of a model, as its family lists them.

#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/config/quantization.h"
#include "model/sources/layer_naming.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// By the names in the checkpoint. Throws Error(kUnsupported) for a layout that this family has
/// not, Error(kNotFound) naming the tensor that should be there.
TensorNaming detect_naming(const ModelConfig& config, const Checkpoint& checkpoint);

/// Whether the checkpoint says if the model has a head of its own, not tie_word_embeddings: then
/// holds_head() goes by the tensor.
bool head_if_stored(const ModelConfig& config);

/// Whether it has the tensor that a model with an untied head needs. Checkpoints of embedding
/// models may be of the body alone, whose names begin with no "model."; for others it is true, and
/// checkpoint_sources() misses the tensor. Throws what detect_naming() throws.
bool holds_head(const ModelConfig& config, const Checkpoint& checkpoint);

/// Of a config that ties the head to the embedding: whether the checkpoint has a head all the same,
/// which is not the same numbers bit for bit, or comes quantized. Then that one counts. Reads both
/// up to the first difference. Throws what detect_naming() throws.
bool holds_other_head(const ModelConfig& config, const Checkpoint& checkpoint);

/// By the config alone.
TensorNaming likely_naming(const ModelConfig& config);

/// Of a checkpoint that comes quantized, the layers' formats are as likely (stored_layers.h).
ModelSources list_sources(const ModelConfig& config, const TensorNaming& naming,
                          const Quantization& quantization = {});

/// The sources of a checkpoint, checked, with the codes it holds, which point into it. Throws what
/// detect_naming(), attach_codes() and check_sources() throw, and Error(kNotFound) for an MTP block
/// that it doesn't hold.
ModelSources checkpoint_sources(const ModelConfig& config, const Checkpoint& checkpoint,
                                const Quantization& quantization);

}  // namespace headrace
