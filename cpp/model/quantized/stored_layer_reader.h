#pragma once

#include <cstdint>
#include <string>

#include "model/checkpoint/checkpoint.h"
#include "model/config/stored_quantization.h"
#include "model/quantized/stored_codes.h"

namespace headrace {

/// The tensor whose name tells that a layer is stored as codes: stem + this. Not for FP8.
const char* codes_suffix(StoredMethod method);

/// The layer [n, k] named `stem` ("model.layers.0.mlp.down_proj"), its tensors checked. Throws as
/// attach_codes() does (stored_layers.h).
StoredLayer read_stored_layer(const StoredQuantization& stored, const Checkpoint& checkpoint,
                              const std::string& stem, int64_t n, int64_t k);

}  // namespace headrace
