#pragma once

#include <memory>

#include "backend/contract/backend.h"
#include "engine/media/encoder_stage.h"
#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"

namespace headrace::internal {

/// What a model on this backend takes of images and clips, without a tower: embeddings, or, where
/// the backend takes no rows that are given, nothing. `needs` are the model's, else.
EncoderStage::Parts plan_media(const ModelOptions& options, const ModelConfig& config,
                               const DecoderOptions& decoder, const Backend& backend,
                               BackendNeeds needs);

}  // namespace headrace::internal
