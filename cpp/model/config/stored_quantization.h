#pragma once

// How a checkpoint that comes quantized says it is: config.json's quantization_config.

#include <cstdint>

#include "model/json/json_value.h"

namespace headrace {

enum class StoredMethod : uint8_t {
  kNone,
  kGptq,         ///< qweight, qzeros, scales, g_idx of AutoGPTQ and GPTQModel
  kAwq,          ///< the same names of AutoAWQ, version gemm
  kPacked,       ///< compressed-tensors' pack-quantized: weight_packed, weight_scale, ...
  kInt8,         ///< its int-quantized: an int8 weight, weight_scale
  kFloat8,       ///< its float-quantized: an FP8 weight, weight_scale
  kMxfp4,        ///< its mxfp4-pack-quantized: weight_packed, weight_scale, uint8
  kMxfp4Blocks,  ///< the method "mxfp4": experts' NAME_blocks, NAME_scales, uint8
  kFp8,          ///< the method "fp8": an FP8 weight, weight_scale_inv or weight_scale
};

struct StoredQuantization {
  StoredMethod method = StoredMethod::kNone;
  int32_t bits = 0;        ///< 4 or 8; 0 for what is_numbers()
  int32_t group_size = 0;  ///< inputs that share a scale, a multiple of 32; 0: all of a feature
  bool zeros_less_one = false;  ///< kGptq: zero points are stored less 1
  /// Groups may be of inputs in an order of a layer's own (act-order), which its g_idx says.
  bool own_order = false;
  /// FP8: features and inputs of the blocks that share a scale; 0: the scales' shape tells, one for
  /// the tensor or one for each feature.
  int32_t block_n = 0, block_k = 0;
  /// Made for activations that are rounded row by row, to the weights' type.
  bool rounded_rows = false;
  bool operator==(const StoredQuantization&) const = default;
};

/// Small floats with scales are read as numbers, and kept as any others are.
inline bool is_numbers(StoredMethod method) {
  return method == StoredMethod::kFloat8 || method == StoredMethod::kFp8 ||
         method == StoredMethod::kMxfp4 || method == StoredMethod::kMxfp4Blocks;
}

/// "gptq", "awq", "compressed-tensors", "fp8", "mxfp4", or "" for none.
const char* stored_method_name(StoredMethod method);

/// From the object `quantization_config` of config.json. Throws Error naming the key: kUnsupported
/// for a method, a version or a value that this build can't load, or a key it doesn't know,
/// kCorruptFile for a value of the wrong type.
StoredQuantization read_stored_quantization(const JsonValue& quantization_config);

}  // namespace headrace
