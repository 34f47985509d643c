#include "backend/cpu/weights/quant_panels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/check.h"
#include "tensor/finite.h"

namespace headrace {

namespace {

constexpr int64_t kQuantBlock = ColumnBlock<float>::kBlock;  // whole groups of every size

/// `count` <= kQuantBlock adjacent elements at `element` of a part's data.
void read_block(const WeightPart& part, int64_t element, int64_t count, const RowKernels& rows,
                float* out) {
  if (part.dtype != DType::kBF16 && part.dtype != DType::kF16) {
    return read_run({part, element, 1, count}, DType::kF32, out);
  }
  const char* from =
      static_cast<const char*>(part.data) + element * static_cast<int64_t>(dtype_size(part.dtype));
  uint16_t aligned[kQuantBlock];
  std::memcpy(aligned, from, static_cast<size_t>(count) * sizeof(uint16_t));
  if (!all_finite(aligned, part.dtype, count)) {
    refuse_numbers({part, element, 1, count}, DType::kF32);
  }
  (part.dtype == DType::kBF16 ? rows.from_bf16 : rows.from_f16)(aligned, count, out);
}

/// A group of one column goes among the others'.
void put_group(const QuantFormat& format, size_t cols, const QuantizedGroup& group, size_t column,
               std::byte* out) {
  std::memcpy(out + 2 * column, &group.scale, sizeof group.scale);
  if (format.zero_points) out[2 * cols + column] = static_cast<std::byte>(group.zero);
  std::byte* codes = out + quant_codes_offset(format, static_cast<int64_t>(cols)) + 4 * column;
  const auto size = static_cast<size_t>(format.group_size);
  for (size_t i = 0; i < size; i += 4) {
    uint32_t four;
    std::memcpy(&four, group.codes + i, 4);
    if (format.bits == 4) {
      uint32_t high;
      i += 4;
      std::memcpy(&high, group.codes + i, 4);
      four |= high << 4;
    }
    std::memcpy(codes, &four, 4);
    codes += 4 * cols;
  }
}

/// Quantizes one panel block by block: columns are gathered, then rounded group by group.
class QuantPacker {
 public:
  QuantPacker(const QuantPanels& weight, const CpuIsa& isa)
      : weight_(weight), isa_(isa), block_(weight.cut().cols) {}

  void pack(std::span<const WeightPart> parts, int64_t panel, std::byte* out) {
    block_.choose(parts, weight_.cut(), panel);
    const auto read = [this](const WeightPart& part, int64_t element, int64_t count, float* to) {
      read_block(part, element, count, *isa_.rows, to);
    };
    for (int64_t first = 0; first < weight_.k(); first += kQuantBlock) {
      const int64_t count = std::min(kQuantBlock, weight_.k() - first);
      block_.gather(first, count, read);
      for (int64_t i = 0; i < count; i += weight_.format().group_size) {
        isa_.quant->quantize_panel(block_.column(0) + i, kQuantBlock, weight_.format(), out);
        out += quant_group_bytes(weight_.format(), weight_.cut().cols);
      }
    }
  }

 private:
  const QuantPanels& weight_;
  const CpuIsa& isa_;
  ColumnBlock<float> block_;
};

/// Packs one panel of a weight that comes as codes.
void pack_codes(const QuantPanels& weight, std::span<const WeightPart> parts, int64_t panel,
                std::byte* out) {
  const QuantFormat& format = weight.format();
  CodeColumns columns(weight.cut());
  columns.choose(parts, panel);
  const uint16_t exponent = format.f16_scales ? 0x7c00 : 0x7f80;
  const auto is_good = [exponent](const QuantizedGroup& group) {
    return (group.scale & exponent) != exponent;
  };
  for (int64_t g = 0; g < weight.k_groups(); ++g) {
    const std::span<const QuantizedGroup> groups = columns.read(g, is_good);
    for (size_t c = 0; c < groups.size(); ++c) put_group(format, groups.size(), groups[c], c, out);
    out += quant_group_bytes(format, weight.cut().cols);
  }
}

/// Where an expert's order is, behind all panels, whose bytes are a multiple of 16.
int64_t order_offset(const QuantPanels& weight, int64_t expert) {
  const auto size = static_cast<int64_t>(sizeof(int32_t));
  return weight.experts() * weight.expert_bytes() + expert * weight.k() * size;
}

/// Activations are rounded before every product with codes here.
void check_activations(const QuantFormat& format) {
  if (format.activations == Activations::kInt8Groups) return;
  if (rounds_rows(format)) {
    throw_error(ErrorCode::kUnsupported, "the CPU backend has no products of ",
                has_float8(format) ? "FP8" : "int8 with a scale for each row",
                ": use wint8, or device cuda.");
  }
  throw_error(ErrorCode::kUnsupported, "the CPU backend has no kernels for W", format.bits,
              "A16, weights of ", format.bits, " bits with activations that aren't rounded: use W",
              format.bits, "A8 (Activations::kInt8Groups), or leave the weights unquantized.");
}

void check_format(const QuantFormat& format, WeightUse use) {
  check_activations(format);
  HEADRACE_CHECK(format.bits == 8 || format.bits == 4, format.bits);
  HEADRACE_CHECK(
      format.group_size == 32 || format.group_size == 64 || format.group_size == kMaxQuantGroup,
      format.group_size);
  HEADRACE_CHECK(use != WeightUse::kEmbedding);
}

}  // namespace

QuantPanels::QuantPanels(const WeightShape& shape, const QuantKernels& kernels,
                         Backend::Buffer memory)
    : PanelWeight(shape, DType::kU8,
                  {shape.n, kernels.panel_cols, kernels.lanes, shape.use == WeightUse::kGateUp},
                  ceil_div(shape.k, int64_t{shape.quant.group_size}),
                  ceil_div(shape.k, int64_t{shape.quant.group_size}) *
                      quant_group_bytes(shape.quant, kernels.panel_cols),
                  std::move(memory)),
      format_(shape.quant) {}

const int32_t* QuantPanels::order(int64_t expert) const noexcept {
  if (!format_.reordered) return nullptr;
  return reinterpret_cast<const int32_t*>(static_cast<const std::byte*>(data()) +
                                          order_offset(*this, expert));
}

void QuantPanels::read_row(int64_t n, float* out) const {
  const int32_t cols = cut().cols;
  const int64_t column = n % cols;
  const std::byte* group = panel(n / cols);
  for (int64_t first = 0; first < k(); first += format_.group_size) {
    uint16_t scale_bits;
    std::memcpy(&scale_bits, group + 2 * column, sizeof scale_bits);
    const float scale = format_.f16_scales ? f16_to_f32(scale_bits) : bf16_to_f32(scale_bits);
    const auto zero = format_.zero_points ? static_cast<int32_t>(group[2 * cols + column])
                                          : quant_zero(format_.bits);
    const std::byte* codes = group + quant_codes_offset(format_, cols) + 4 * column;
    const int64_t count = std::min<int64_t>(format_.group_size, k() - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step = i * format_.bits / 32;  // steps hold 4 or 8 k
      auto code = static_cast<int32_t>(codes[step * 4 * cols + i % 4]);
      if (format_.bits == 4) code = i % 8 < 4 ? code & 15 : code >> 4;
      out[first + i] = scale * static_cast<float>(code - zero);
    }
    group += quant_group_bytes(format_, cols);
  }
}

std::unique_ptr<QuantPanels> pack_quantized(const WeightSpec& spec, const CpuIsa& isa,
                                            HostMemory& memory, ThreadPool& pool) {
  const WeightShape shape = shape_of(spec, check_weight(spec));
  Backend::Buffer buffer = memory.allocate(packed_quant_bytes(shape, *isa.quant));
  auto* data = static_cast<std::byte*>(buffer.data);
  auto weight = std::make_unique<QuantPanels>(shape, *isa.quant, std::move(buffer));
  const bool has_codes = spec.parts.front().codes != nullptr;
  pack_all_panels(spec, *weight, data, pool,
                  [&](std::span<const WeightPart> parts, int64_t panel, std::byte* out) {
                    if (has_codes) {
                      pack_codes(*weight, parts, panel, out);
                    } else {
                      QuantPacker(*weight, isa).pack(parts, panel, out);
                    }
                  });
  for (int32_t expert = 0; spec.quant.reordered && expert < spec.experts; ++expert) {
    const std::vector<int32_t>& order = expert_parts(spec, expert).front().codes->order();
    std::memcpy(data + order_offset(*weight, expert), order.data(), order.size() * sizeof(int32_t));
  }
  return weight;
}

// The version of the layout comes first: raise it when the same numbers would lie elsewhere.
std::string quant_layout_name(const QuantFormat& format, const QuantKernels& kernels) {
  check_activations(format);
  return str_cat("cpu-quant-1:", kernels.panel_cols, "/", kernels.lanes);
}

size_t packed_quant_bytes(const WeightShape& shape, const QuantKernels& kernels) {
  check_format(shape.quant, shape.use);
  return checked_weight_bytes(shape, [&]() -> std::optional<uint64_t> {
    const auto panels = count_panel_bytes(QuantPanels(shape, kernels, {}));
    if (!panels || !shape.quant.reordered) return panels;
    const auto inputs = static_cast<uint64_t>(shape.k) * static_cast<uint64_t>(shape.experts);
    return checked_add(*panels, inputs * sizeof(int32_t));
  });
}

std::unique_ptr<QuantPanels> restore_quantized(const WeightShape& shape,
                                               const QuantKernels& kernels,
                                               Backend::Buffer contents) {
  HEADRACE_CHECK(contents.bytes == packed_quant_bytes(shape, kernels), contents.bytes);
  auto weight = std::make_unique<QuantPanels>(shape, kernels, std::move(contents));
  if (shape.quant.reordered) check_order(weight->order(), shape.experts, shape.k);
  return weight;
}

}  // namespace headrace
