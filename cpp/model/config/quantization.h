#pragma once

// How the weights of a model are quantized, as options name it and matrix by matrix.

#include <cstdint>
#include <string>

#include "backend/contract/backend.h"

namespace headrace {

/// bits == 0: not at all. Linear layers get these bits and groups. The head, an embedding that
/// serves as head, and the linears of a vision tower get int8 in any case. An embedding that is
/// only looked up in and a tower's patch embedding keep the model's dtype.
struct Quantization {
  int32_t bits = 0;        ///< 0, 8 or 4
  int32_t group_size = 0;  ///< 32, 64 or 128

  bool operator==(const Quantization&) const = default;
};

/// Of a name and a group size, 0: that of the name (64 for wint8, 32 for wint4). Throws
/// Error(kInvalidArgument) naming the choices.
Quantization parse_quantization(const std::string& name, int32_t group_size);

/// The name that parse_quantization takes.
std::string quantization_name(const Quantization& quantization);

/// The format of a layer's matrix, of the head, and of a vision tower's linears.
QuantFormat layer_format(const Quantization& quantization);
QuantFormat head_format(const Quantization& quantization);
QuantFormat tower_format(const Quantization& quantization);

}  // namespace headrace
