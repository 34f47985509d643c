#include "backend/cpu/weights/float4_panels.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backend/host/weight_source.h"
#include "base/check.h"

namespace headrace {

namespace {

/// 2^127 is the largest scale: codes of 2 and more are beyond float32 with it.
bool is_finite(const QuantizedGroup& group) {
  constexpr uint16_t kLargest = 254;
  if (group.scale != kLargest) return group.scale < kLargest;
  return std::none_of(group.codes, group.codes + kFloat4Format.group_size,
                      [](uint8_t code) { return (code & 7) >= 4; });
}

void pack_panel(const Float4Panels& weight, const LinearKernels& kernels,
                std::span<const WeightPart> parts, int64_t panel, std::byte* out) {
  CodeColumns columns(weight.cut());
  columns.choose(parts, panel);
  for (int64_t g = 0; g < weight.k_groups(); ++g) {
    kernels.put_float4(columns.read(g, is_finite).data(), out);
    out += float4_group_bytes(kernels.panel_cols);
  }
}

}  // namespace

Float4Panels::Float4Panels(const WeightShape& shape, const LinearKernels& kernels,
                           Backend::Buffer memory)
    : PanelWeight(shape, DType::kU8,
                  {shape.n, kernels.panel_cols, kernels.lanes, shape.use == WeightUse::kGateUp},
                  shape.k / kFloat4Format.group_size,
                  shape.k / kFloat4Format.group_size * float4_group_bytes(kernels.panel_cols),
                  std::move(memory)),
      activations_(shape.storage) {}

const LinearFormat& float4_format(const LinearKernels& kernels, DType activations) {
  return activations == DType::kBF16 ? kernels.float4_bf16 : kernels.float4_f32;
}

std::unique_ptr<Float4Panels> pack_float4(const WeightSpec& spec, const LinearKernels& kernels,
                                          HostMemory& memory, ThreadPool& pool) {
  const WeightShape shape = shape_of(spec, check_weight(spec));
  Backend::Buffer buffer = memory.allocate(packed_float4_bytes(shape, kernels));
  auto* data = static_cast<std::byte*>(buffer.data);
  auto weight = std::make_unique<Float4Panels>(shape, kernels, std::move(buffer));
  pack_all_panels(spec, *weight, data, pool,
                  [&](std::span<const WeightPart> parts, int64_t panel, std::byte* out) {
                    pack_panel(*weight, kernels, parts, panel, out);
                  });
  return weight;
}

// The version of the layout comes first: raise it when the same numbers would lie elsewhere.
std::string float4_layout_name(const LinearKernels& kernels) {
  return str_cat("cpu-float4-1:", kernels.panel_cols, "/", kernels.lanes);
}

size_t packed_float4_bytes(const WeightShape& shape, const LinearKernels& kernels) {
  HEADRACE_CHECK(shape.quant == kFloat4Format && shape.k % kFloat4Format.group_size == 0, shape.k);
  HEADRACE_CHECK(shape.use == WeightUse::kLinear || shape.use == WeightUse::kGateUp);
  return checked_weight_bytes(shape,
                              [&] { return count_panel_bytes(Float4Panels(shape, kernels, {})); });
}

std::unique_ptr<Float4Panels> restore_float4(const WeightShape& shape, const LinearKernels& kernels,
                                             Backend::Buffer contents) {
  HEADRACE_CHECK(contents.bytes == packed_float4_bytes(shape, kernels), contents.bytes);
  return std::make_unique<Float4Panels>(shape, kernels, std::move(contents));
}

}  // namespace headrace
