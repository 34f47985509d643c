#pragma once

#include "headrace/options.h"
#include "model/config/model_config.h"
#include "model/packed/packed_file.h"

namespace headrace::internal {

/// Throws Error(kUnsupported) for what several devices don't share. packed: null without a file.
void check_ranks(const ModelOptions& options, const ModelConfig& config, const PackedFile* packed);

}  // namespace headrace::internal
