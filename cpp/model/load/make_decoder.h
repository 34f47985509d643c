#pragma once

// A decoder of a checkpoint, and what it will take.

#include <cstddef>
#include <memory>

#include "backend/contract/backend.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/config/quantization.h"
#include "model/decoder/decoder.h"

namespace headrace {

/// Loads and packs all weights. Throws Error(kCorruptFile/kNotFound/kUnsupported/kOutOfMemory)
/// naming the tensor; names, shapes and dtypes are all checked before the first one is packed. Each
/// checkpoint page is read once and dropped after it is packed. Throws what Decoder's constructor
/// throws. The checkpoint is not needed any more after this; it may be null for dummy weights.
std::unique_ptr<Decoder> make_decoder(Backend& backend, const ModelConfig& config,
                                      const Checkpoint* checkpoint, const DecoderOptions& options);

/// Scratch bytes that a decoder with these options will take. Here and below, the config is the
/// whole model's, for every rank.
size_t plan_scratch_bytes(const ModelConfig& config, const DecoderOptions& options,
                          DType activation);

/// Packed weights' bytes, before they are loaded (exact up to layout padding).
size_t plan_weight_bytes(const ModelConfig& config, DType storage,
                         const Quantization& quantization = {}, const RankPlace& rank = {});

}  // namespace headrace
