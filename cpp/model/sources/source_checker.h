#pragma once

#include "model/checkpoint/checkpoint.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// Throws Error(kNotFound) for a tensor that is missing, Error(kCorruptFile) for a wrong shape,
/// naming tensor, expected and found shape, and Error(kUnsupported) for an element type that is
/// no float and for tensors that the model has no place for. An MTP block needs none.
void check_sources(const ModelSources& sources, const Checkpoint& checkpoint,
                   const MtpTensors& mtp);

}  // namespace headrace
