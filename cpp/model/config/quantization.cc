#include "model/config/quantization.h"

#include "base/check.h"

namespace headrace {

namespace {

constexpr int32_t kInt8Group = 64;
constexpr int32_t kInt4Group = 32;

}  // namespace

Quantization parse_quantization(const std::string& name, int32_t group_size) {
  if ((name.empty() || name == "none") && group_size == 0) return {};
  if (name != "wint8" && name != "wint4") {
    throw_error(ErrorCode::kInvalidArgument,
                "quantization must be empty, none, wint8 or wint4, got ",
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
  return quantization.bits == 8 ? "wint8" : "wint4";
}

QuantFormat layer_format(const Quantization& quantization) {
  return {.bits = quantization.bits, .group_size = quantization.group_size};
}

QuantFormat head_format(const Quantization& quantization) {
  if (quantization.bits == 4) return {.bits = 8, .group_size = kInt8Group};
  return layer_format(quantization);
}

QuantFormat tower_format(const Quantization& quantization) { return head_format(quantization); }

}  // namespace headrace
