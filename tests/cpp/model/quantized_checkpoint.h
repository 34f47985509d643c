#pragma once

// Checkpoints as quantization tools write them, made of a small one that isn't quantized.

#include <filesystem>

namespace headrace {

enum class Tool { kGptq, kGptqActOrder, kAwq, kPacked, kInt8 };

/// Writes `from` to the folders `quantized`, its layers' matrices (but for routers) as codes in
/// groups of 32 inputs, and `plain`, with what the codes mean in float32.
void write_quantized(const std::filesystem::path& from, Tool tool,
                     const std::filesystem::path& quantized, const std::filesystem::path& plain);

}  // namespace headrace
