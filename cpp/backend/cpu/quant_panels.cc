#include "backend/cpu/quant_panels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "backend/cpu/weight_source.h"
#include "base/check.h"

namespace headrace {

namespace {

constexpr int64_t kBlock = ColumnBlock<float>::kBlock;  // whole groups of every size

/// `count` <= kBlock adjacent elements at `element` of a part's data.
void read_run(const WeightPart& part, int64_t element, int64_t count, const RowKernels& rows,
              float* out) {
  const char* from =
      static_cast<const char*>(part.data) + element * static_cast<int64_t>(dtype_size(part.dtype));
  if (part.dtype != DType::kBF16 && part.dtype != DType::kF16) {
    return read_elements(from, part.dtype, 1, count, out);
  }
  uint16_t aligned[kBlock];
  std::memcpy(aligned, from, static_cast<size_t>(count) * sizeof(uint16_t));
  (part.dtype == DType::kBF16 ? rows.from_bf16 : rows.from_f16)(aligned, count, out);
}

/// Quantizes one panel block by block: columns are gathered, then each group of each column is
/// rounded and its codes put among the others'.
class QuantPacker {
 public:
  QuantPacker(const WeightSpec& spec, const QuantPanels& weight, const CpuIsa& isa)
      : spec_(spec), weight_(weight), isa_(isa), block_(weight.cut().cols) {}

  void pack(int64_t panel, std::byte* out) {
    block_.choose(spec_, weight_.cut(), panel);
    const auto read = [this](const WeightPart& part, int64_t element, int64_t count, float* to) {
      read_run(part, element, count, *isa_.rows, to);
    };
    for (int64_t first = 0; first < weight_.k(); first += kBlock) {
      const int64_t count = std::min(kBlock, weight_.k() - first);
      block_.gather(first, count, read);
      for (int64_t i = 0; i < count; i += weight_.format().group_size) {
        round_group(i, out);
        out += quant_group_bytes(weight_.format(), weight_.cut().cols);
      }
    }
  }

 private:
  void round_group(int64_t at, std::byte* out) const {
    const QuantFormat& format = weight_.format();
    const size_t cols = block_.cols();
    std::byte* codes = out + quant_codes_offset(format, static_cast<int64_t>(cols));
    QuantizedGroup group;
    for (size_t c = 0; c < cols; ++c) {
      isa_.quant->quantize_group(block_.column(c) + at, format.group_size, format.bits, &group);
      std::memcpy(out + 2 * c, &group.scale, sizeof group.scale);
      if (format.bits == 8) {
        put_bytes(group.codes, c, codes);
      } else {
        put_nibbles(group.codes, c, codes);
      }
    }
  }

  void put_bytes(const uint8_t* from, size_t column, std::byte* codes) const {
    const auto quads = static_cast<size_t>(weight_.format().group_size / 4);
    for (size_t q = 0; q < quads; ++q) {
      std::memcpy(codes + (q * block_.cols() + column) * 4, from + 4 * q, 4);
    }
  }

  void put_nibbles(const uint8_t* from, size_t column, std::byte* codes) const {
    const auto pairs = static_cast<size_t>(weight_.format().group_size / 8);
    for (size_t p = 0; p < pairs; ++p) {
      uint32_t low, high;
      std::memcpy(&low, from + 8 * p, 4);
      std::memcpy(&high, from + 8 * p + 4, 4);
      low |= high << 4;
      std::memcpy(codes + (p * block_.cols() + column) * 4, &low, 4);
    }
  }

  const WeightSpec& spec_;
  const QuantPanels& weight_;
  const CpuIsa& isa_;
  ColumnBlock<float> block_;
};

void check_format(const QuantFormat& format, WeightUse use) {
  HEADRACE_CHECK(format.bits == 8 || format.bits == 4, format.bits);
  HEADRACE_CHECK(
      format.group_size == 32 || format.group_size == 64 || format.group_size == kMaxQuantGroup,
      format.group_size);
  HEADRACE_CHECK(use != WeightUse::kEmbedding);
}

}  // namespace

QuantPanels::QuantPanels(const WeightShape& shape, const QuantKernels& kernels,
                         Backend::Buffer memory)
    : PackedWeight(shape.n, shape.k, DType::kU8, memory.data, memory.bytes),
      cut_{shape.n, kernels.panel_cols, kernels.lanes, shape.use == WeightUse::kGateUp},
      format_(shape.quant),
      memory_(std::move(memory)) {}

int64_t QuantPanels::k_groups() const noexcept {
  return ceil_div(k(), int64_t{format_.group_size});
}

int64_t QuantPanels::panel_bytes() const noexcept {
  return k_groups() * quant_group_bytes(format_, cut_.cols);
}

void QuantPanels::read_row(int64_t n, float* out) const {
  const int64_t column = n % cut_.cols;
  const std::byte* group = panel(n / cut_.cols);
  for (int64_t first = 0; first < k(); first += format_.group_size) {
    uint16_t scale_bits;
    std::memcpy(&scale_bits, group + 2 * column, sizeof scale_bits);
    const float scale = format_.f16_scales ? f16_to_f32(scale_bits) : bf16_to_f32(scale_bits);
    const auto zero = format_.zero_points ? static_cast<int32_t>(group[2 * cut_.cols + column])
                                          : quant_zero(format_.bits);
    const std::byte* codes = group + quant_codes_offset(format_, cut_.cols) + 4 * column;
    const int64_t count = std::min<int64_t>(format_.group_size, k() - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step = i * format_.bits / 32;  // steps hold 4 or 8 k
      auto code = static_cast<int32_t>(codes[step * 4 * cut_.cols + i % 4]);
      if (format_.bits == 4) code = i % 8 < 4 ? code & 15 : code >> 4;
      out[first + i] = scale * static_cast<float>(code - zero);
    }
    group += quant_group_bytes(format_, cut_.cols);
  }
}

std::unique_ptr<QuantPanels> pack_quantized(const WeightSpec& spec, const CpuIsa& isa,
                                            HostMemory& memory, ThreadPool& pool) {
  const WeightExtent extent = check_weight(spec);
  HEADRACE_CHECK(!spec.quant.zero_points && !spec.quant.f16_scales);
  const WeightShape shape{extent.n, extent.k, spec.storage, spec.use, spec.quant};
  Backend::Buffer buffer = memory.allocate(packed_quant_bytes(shape, *isa.quant));
  auto* data = static_cast<std::byte*>(buffer.data);
  auto weight = std::make_unique<QuantPanels>(shape, *isa.quant, std::move(buffer));
  pool.parallel_for(weight->cut().num_panels(), 1, [&](int64_t begin, int64_t end, int32_t) {
    QuantPacker packer(spec, *weight, isa);
    for (int64_t panel = begin; panel < end; ++panel) {
      packer.pack(panel, data + panel * weight->panel_bytes());
    }
  });
  return weight;
}

// The version of the layout comes first: raise it when the same numbers would lie elsewhere.
std::string quant_layout_name(const QuantKernels& kernels) {
  return str_cat("cpu-quant-1:", kernels.panel_cols, "/", kernels.lanes);
}

size_t packed_quant_bytes(const WeightShape& shape, const QuantKernels& kernels) {
  check_format(shape.quant, shape.use);
  return checked_weight_bytes(shape, [&]() -> std::optional<uint64_t> {
    const QuantPanels empty(shape, kernels, {});
    return checked_mul(static_cast<uint64_t>(empty.cut().num_panels()),
                       static_cast<uint64_t>(empty.panel_bytes()));
  });
}

std::unique_ptr<QuantPanels> restore_quantized(const WeightShape& shape,
                                               const QuantKernels& kernels,
                                               Backend::Buffer contents) {
  HEADRACE_CHECK(contents.bytes == packed_quant_bytes(shape, kernels), contents.bytes);
  return std::make_unique<QuantPanels>(shape, kernels, std::move(contents));
}

}  // namespace headrace
