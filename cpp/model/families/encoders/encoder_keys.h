#pragma once

// Keys that encoders share.

#include <cstdint>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"

namespace headrace {

/// Labels of a checkpoint that classifies texts (architecture ...ForSequenceClassification): as
/// many as id2label has, else num_labels. 0 of another one.
int32_t read_labels(ConfigReader& reader, const ModelConfig& config);

}  // namespace headrace
