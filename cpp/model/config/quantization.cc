#include "model/config/quantization.h"

#include "base/check.h"

namespace headrace {

namespace {

constexpr int32_t kInt8Group = 64;
constexpr int32_t kInt4Group = 32;

}  // namespace

Quantization parse_quantization(const std::string& name, int32_t group_size) {
  if ((name.empty() || name == "none") && group_size == 0) return {};
  if (name == "fp8" || name == "block_wise_fp8") {
    if (group_size == 0 || (group_size == kMaxQuantGroup && name != "fp8")) {
      return {.bits = 8,
              .group_size = kMaxQuantGroup,
              .float8 = name == "fp8" ? Float8::kRows : Float8::kGroups};
    }
    throw_error(ErrorCode::kInvalidArgument, "quantization ", name, " has ",
                name == "fp8" ? "a scale for each whole feature" : "groups of 128 inputs",
                ": leave quantization_group_size out, got ", group_size, ".");
  }
  if (name != "wint8" && name != "wint4") {
    throw_error(ErrorCode::kInvalidArgument,
                "quantization must be empty, none, wint8, wint4, fp8 or block_wise_fp8, got ",
                name.empty() ? "a group size without it" : name, ".");
  }
  Quantization out{.bits = name == "wint8" ? 8 : 4, .group_size = group_size};
  if (group_size == 0) out.group_size = out.bits == 8 ? kInt8Group : kInt4Group;
  if (out.group_size != 32 && out.group_size != 64 && out.group_size != 128) {
    throw_error(ErrorCode::kInvalidArgument,
                "quantization_group_size must be 32, 64, 128 or 0 (choose), got ", group_size, ".");
  }
  return out;
}

std::string quantization_name(const Quantization& quantization) {
  if (quantization.bits == 0) return "";
  if (quantization.float8 != Float8::kNone) {
    return quantization.float8 == Float8::kRows ? "fp8" : "block_wise_fp8";
  }
  return quantization.bits == 8 ? "wint8" : "wint4";
}

Quantization on_device(Quantization quantization, const DeviceInfo& device) {
  quantization.activations = device.quant_activations;
  quantization.code_products = device.code_products;
  quantization.float4_weights = device.float4_weights;
  return quantization;
}

QuantFormat layer_format(const Quantization& quantization) {
  if (quantization.float8 != Float8::kNone) {
    return {.bits = 8,
            .group_size = kMaxQuantGroup,
            .activations = quantization.float8 == Float8::kRows ? Activations::kFloat8Rows
                                                                : Activations::kFloat8Groups};
  }
  return {.bits = quantization.bits,
          .group_size = quantization.group_size,
          .activations = quantization.activations};
}

QuantFormat head_format(const Quantization& quantization) {
  if (quantization.float8 != Float8::kNone) return {};
  if (quantization.bits == 4) {
    return {.bits = 8, .group_size = kInt8Group, .activations = quantization.activations};
  }
  return layer_format(quantization);
}

QuantFormat tower_format(const Quantization& quantization) { return head_format(quantization); }

}  // namespace headrace
