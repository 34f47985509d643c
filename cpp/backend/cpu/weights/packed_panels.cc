#include "backend/cpu/weights/packed_panels.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "tensor/finite.h"

namespace headrace {

namespace {

constexpr int64_t kBlock = ColumnBlock<float>::kBlock;  // k elements interleaved at a time

template <class Storage>
Storage to_storage(DType dtype, float value);
template <>
float to_storage<float>(DType, float value) {
  return value;
}
template <>
uint16_t to_storage<uint16_t>(DType dtype, float value) {
  return dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
}

/// `count` <= kBlock adjacent elements at `element` of a part's data, as they are stored.
template <class Storage>
void read_stored(const WeightPart& part, int64_t element, DType storage, int64_t count,
                 Storage* out) {
  if (part.dtype == storage) {
    const char* from = static_cast<const char*>(part.data) +
                       element * static_cast<int64_t>(dtype_size(part.dtype));
    std::memcpy(out, from, static_cast<size_t>(count) * sizeof(Storage));
    if (!all_finite(out, storage, count)) refuse_numbers({part, element, 1, count}, storage);
    return;
  }
  float wide[kBlock];
  read_run({part, element, 1, count}, storage, wide);
  for (int64_t i = 0; i < count; ++i) out[i] = to_storage<Storage>(storage, wide[i]);
}

/// Packs one panel block by block: columns are gathered, then interleaved into the panel.
template <class Storage>
class PanelPacker {
 public:
  explicit PanelPacker(const PackedPanels& weight)
      : weight_(weight), block_(weight.layout().cols) {}

  void pack(std::span<const WeightPart> parts, int64_t panel, std::byte* destination) {
    const PanelLayout& layout = weight_.layout();
    block_.choose(parts, weight_.cut(), panel);
    const auto read = [this](const WeightPart& part, int64_t element, int64_t count, Storage* to) {
      read_stored(part, element, weight_.storage(), count, to);
    };
    auto* out = reinterpret_cast<Storage*>(destination);
    for (int64_t first = 0; first < weight_.k(); first += kBlock) {
      const int64_t count = std::min(kBlock, weight_.k() - first);
      block_.gather(first, count, read);
      const int64_t groups = ceil_div(count, int64_t{layout.group});
      if (layout.group == 2) {
        interleave<2>(groups, out);
      } else {
        interleave<1>(groups, out);
      }
      out += groups * layout.group * layout.cols;
    }
  }

 private:
  template <size_t kGroup>
  void interleave(int64_t groups, Storage* out) const {
    const size_t cols = block_.cols();
    for (size_t g = 0; g < static_cast<size_t>(groups); ++g) {
      for (size_t c = 0; c < cols; ++c) {
        std::memcpy(out + (g * cols + c) * kGroup, block_.column(c) + g * kGroup,
                    kGroup * sizeof(Storage));
      }
    }
  }

  const PackedPanels& weight_;
  ColumnBlock<Storage> block_;
};

template <class Storage>
void pack_rows(const WeightSpec& spec, const PackedPanels& weight, int64_t begin, int64_t end,
               std::byte* memory) {
  std::vector<float> wide(static_cast<size_t>(weight.k()));
  for (int64_t row = begin; row < end; ++row) {
    auto* out = reinterpret_cast<Storage*>(memory) + row * weight.k();
    const WeightColumn column = find_feature(spec.parts, row);
    if (column.part->dtype == spec.storage && !column.part->transposed) {
      read_stored(*column.part, column.feature * column.part->row_stride, spec.storage, weight.k(),
                  out);
      continue;
    }
    read_weight_row(spec, row, 0, weight.k(), wide.data());
    for (int64_t i = 0; i < weight.k(); ++i) {
      out[i] = to_storage<Storage>(spec.storage, wide[static_cast<size_t>(i)]);
    }
  }
}

template <class Storage>
void pack_all(const WeightSpec& spec, const PackedPanels& weight, std::byte* memory,
              ThreadPool& pool) {
  if (weight.layout().row_major) {
    pool.parallel_for(weight.n(), 64, [&](int64_t begin, int64_t end, int32_t) {
      pause_packing(spec);
      pack_rows<Storage>(spec, weight, begin, end, memory);
    });
    return;
  }
  pack_all_panels(spec, weight, memory, pool,
                  [&](std::span<const WeightPart> parts, int64_t panel, std::byte* out) {
                    PanelPacker<Storage>(weight).pack(parts, panel, out);
                  });
}

PanelLayout layout_for(DType storage, WeightUse use, const LinearKernels& kernels) {
  const LinearFormat& format = linear_format(kernels, storage);
  PanelLayout layout;
  layout.cols = kernels.panel_cols;
  layout.lanes = kernels.lanes;
  layout.group = format.group;
  layout.gate_up = use == WeightUse::kGateUp;
  layout.row_major = use == WeightUse::kEmbedding;
  layout.element_bytes = static_cast<int32_t>(dtype_size(storage));
  if (layout.row_major) layout.cols = layout.group = 1;
  return layout;
}

}  // namespace

const LinearFormat& linear_format(const LinearKernels& kernels, DType storage) {
  if (storage == DType::kBF16) return kernels.bf16;
  if (storage == DType::kF16) return kernels.f16;
  HEADRACE_CHECK(storage == DType::kF32, dtype_name(storage));
  return kernels.f32;
}

PackedPanels::PackedPanels(const WeightShape& shape, const PanelLayout& layout,
                           Backend::Buffer memory)
    : PanelWeight(shape, shape.storage, {shape.n, layout.cols, layout.lanes, layout.gate_up},
                  ceil_div(shape.k, int64_t{layout.group}),
                  round_up(shape.k, int64_t{layout.group}) * layout.cols * layout.element_bytes,
                  std::move(memory)),
      layout_(layout) {}

PackedPanels::Row PackedPanels::row(int64_t n) const noexcept {
  const std::byte* first =
      panel(n / layout_.cols) + n % layout_.cols * layout_.group * layout_.element_bytes;
  return {first, int64_t{layout_.cols} * layout_.group};
}

std::unique_ptr<PackedPanels> pack_panels(const WeightSpec& spec, const LinearKernels& kernels,
                                          HostMemory& memory, ThreadPool& pool) {
  const WeightShape shape = shape_of(spec, check_weight(spec));
  const PanelLayout layout = layout_for(spec.storage, spec.use, kernels);
  Backend::Buffer buffer = memory.allocate(packed_panel_bytes(shape, kernels));
  auto* data = static_cast<std::byte*>(buffer.data);
  auto weight = std::make_unique<PackedPanels>(shape, layout, std::move(buffer));
  if (spec.storage == DType::kF32) {
    pack_all<float>(spec, *weight, data, pool);
  } else {
    pack_all<uint16_t>(spec, *weight, data, pool);
  }
  return weight;
}

// The version of the layout comes first: raise it when the same numbers would lie elsewhere.
std::string panel_layout_name(DType storage, const LinearKernels& kernels) {
  return str_cat("cpu-panels-1:", kernels.panel_cols, "x", linear_format(kernels, storage).group,
                 "/", kernels.lanes);
}

size_t packed_panel_bytes(const WeightShape& shape, const LinearKernels& kernels) {
  return checked_weight_bytes(shape, [&] {
    return count_panel_bytes(
        PackedPanels(shape, layout_for(shape.storage, shape.use, kernels), {}));
  });
}

std::unique_ptr<PackedPanels> restore_panels(const WeightShape& shape, const LinearKernels& kernels,
                                             Backend::Buffer contents) {
  HEADRACE_CHECK(contents.bytes == packed_panel_bytes(shape, kernels), contents.bytes);
  return std::make_unique<PackedPanels>(shape, layout_for(shape.storage, shape.use, kernels),
                                        std::move(contents));
}

}  // namespace headrace
