#pragma once

// How the weights of a model are quantized, as options name it and matrix by matrix.

#include <cstdint>
#include <string>

#include "backend/contract/device_info.h"
#include "backend/contract/quant_format.h"

namespace headrace {

/// Weights of 8 bits that are FP8 e4m3, and activations with them.
enum class Float8 : uint8_t {
  kNone,
  kRows,    ///< a scale for each feature, and for each row
  kGroups,  ///< one for each feature and 128 inputs, and for each row and 128
};

/// bits == 0: not at all. Linear layers get these bits and groups. The head, an embedding that
/// serves as head, and the linears of a vision tower get int8 in any case. An embedding that is
/// only looked up in and a tower's patch embedding keep the model's dtype.
struct Quantization {
  int32_t bits = 0;        ///< 0, 8 or 4
  int32_t group_size = 0;  ///< 32, 64 or 128
  /// What the device wants them to be (DeviceInfo::quant_activations), of weights that come as
  /// codes, too.
  Activations activations = Activations::kInt8Groups;

  /// Linear layers get FP8 instead; heads and towers keep the model's dtype.
  Float8 float8 = Float8::kNone;
  /// Of the device, too (DeviceInfo::code_products).
  bool code_products = false;
  bool float4_weights = false;  ///< likewise (DeviceInfo::float4_weights)

  bool operator==(const Quantization&) const = default;
};

/// Of a name and a group size, 0: that of the name (64 for wint8, 32 for wint4; fp8 and
/// block_wise_fp8 have no other). Throws
/// Error(kInvalidArgument) naming the choices.
Quantization parse_quantization(const std::string& name, int32_t group_size);

/// What the device says of it.
Quantization on_device(Quantization quantization, const DeviceInfo& device);

/// The name that parse_quantization takes.
std::string quantization_name(const Quantization& quantization);

/// The format of a layer's matrix, of the head, and of a vision tower's linears.
QuantFormat layer_format(const Quantization& quantization);
QuantFormat head_format(const Quantization& quantization);
QuantFormat tower_format(const Quantization& quantization);

}  // namespace headrace
