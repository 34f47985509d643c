#pragma once

#include <filesystem>

#include "benchmarks/cuda/work.h"

namespace headrace::bench {

/// Writes config.json and model.safetensors of that shape into `folder`, with bfloat16 numbers cut
/// from one small pool of random ones: as fast as the disk takes it. Norms are 1. Throws
/// std::runtime_error where the disk doesn't take it.
void write_checkpoint(const ModelShape& shape, const std::filesystem::path& folder);

}  // namespace headrace::bench
