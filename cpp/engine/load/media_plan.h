#pragma once

#include <memory>

#include "backend/contract/backend.h"
#include "engine/media/encoder_stage.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"

namespace headrace::internal {

/// What a model on this backend takes of images and clips before its tower is there: embeddings,
/// or, where the backend takes no rows that are given, nothing. `needs` are the model's, else.
EncoderStage::Parts plan_media(const ModelOptions& options, const ModelConfig& config,
                               const DecoderOptions& decoder, Backend& backend, BackendNeeds needs);

/// Adds the model's tower, with memory for the largest images that have a place in a prompt, as far
/// as they are encoded in an eighth of the device's memory. `max_model_len` is the model's.
void add_tower(std::shared_ptr<VisionTower> tower, const VisionConfig& config,
               const ModelOptions& options, int32_t max_model_len, size_t device_bytes,
               EncoderStage::Parts& parts);

}  // namespace headrace::internal
