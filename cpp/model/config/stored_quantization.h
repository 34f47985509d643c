#pragma once

// How a checkpoint that comes quantized says it is: config.json's quantization_config.

#include <cstdint>

#include "model/config/json.h"

namespace headrace {

enum class StoredMethod : uint8_t {
  kNone,
  kGptq,    ///< qweight, qzeros, scales, g_idx of AutoGPTQ and GPTQModel
  kAwq,     ///< the same names of AutoAWQ, version gemm
  kPacked,  ///< compressed-tensors' pack-quantized: weight_packed, weight_scale, ...
  kInt8,    ///< its int-quantized: an int8 weight, weight_scale
};

struct StoredQuantization {
  StoredMethod method = StoredMethod::kNone;
  int32_t bits = 0;        ///< 4 or 8
  int32_t group_size = 0;  ///< inputs that share a scale, a multiple of 32; 0: all of a feature
  bool zeros_less_one = false;  ///< kGptq: zero points are stored less 1
  bool operator==(const StoredQuantization&) const = default;
};

/// "gptq", "awq", "compressed-tensors", or "" for none.
const char* stored_method_name(StoredMethod method);

/// From the object `quantization_config` of config.json. Throws Error naming the key: kUnsupported
/// for a method, a version or a value that this build can't load, or a key it doesn't know,
/// kCorruptFile for a value of the wrong type.
StoredQuantization read_stored_quantization(const Json& quantization_config);

}  // namespace headrace
