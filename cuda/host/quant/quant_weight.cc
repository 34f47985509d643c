#include "cuda/host/quant/quant_weight.h"

#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/quant/quant_tile_writer.h"

namespace headrace::cuda {

namespace {

// The version of the layout: raise it when the same numbers would lie elsewhere.
constexpr const char* kLayoutName = "cuda-quant-1";

QuantLayout layout_of(const WeightShape& shape) {
  return {{.n = shape.n, .k = shape.k, .gate_up = shape.use == WeightUse::kGateUp}, shape.quant};
}

void check_activations(const QuantFormat& format) {
  if (format.activations == Activations::kWhole) return;
  throw_error(ErrorCode::kUnsupported, "the CUDA backend has no kernels for W", format.bits,
              "A8, weights of ", format.bits, " bits with activations that are rounded: use W",
              format.bits, "A16 (Activations::kWhole), or leave the weights unquantized.");
}

void check_format(const WeightShape& shape) {
  const QuantFormat& format = shape.quant;
  check_activations(format);
  if (shape.experts != 1) {
    throw_error(ErrorCode::kUnsupported, "the CUDA backend runs no quantized experts (this weight ",
                "has ", shape.experts, " of ", format.bits, " bits): take a checkpoint that isn't ",
                "quantized and leave quantization out, or use device cpu.");
  }
  HEADRACE_CHECK(format.bits == 8 || format.bits == 4, format.bits);
  HEADRACE_CHECK(
      format.group_size == 32 || format.group_size == 64 || format.group_size == kMaxQuantGroup,
      format.group_size);
  HEADRACE_CHECK(shape.use != WeightUse::kEmbedding &&
                 !(format.reordered && shape.use == WeightUse::kTiedEmbedding));
}

std::vector<int64_t> stored_rows(const WeightLayout& layout) {
  std::vector<int64_t> out(static_cast<size_t>(layout.stored_rows()), -1);
  for (int64_t i = 0; i < layout.n; ++i) out[static_cast<size_t>(layout.stored_row(i))] = i;
  return out;
}

}  // namespace

QuantWeight::QuantWeight(const WeightShape& shape, Backend::Buffer memory)
    : PackedWeight(shape.n, shape.k, shape.storage, memory.data, memory.bytes),
      layout_(layout_of(shape)),
      memory_(std::move(memory)) {}

std::string quant_weight_layout(const QuantFormat& format) {
  check_activations(format);
  return str_cat(kLayoutName, "-", kQuantTile, "x", kQuantUnit, "-", kGateUpGroup);
}

size_t quant_weight_bytes(const WeightShape& shape) {
  check_format(shape);
  return checked_weight_bytes(shape, [&]() -> std::optional<uint64_t> {
    // Sides are at most 2^40 here: sums of a few of them are exact.
    const QuantLayout layout = layout_of(shape);
    const auto tiles = checked_mul(static_cast<uint64_t>(layout.tiles()),
                                   static_cast<uint64_t>(layout.tile_bytes()));
    const uint64_t order = shape.quant.reordered ? static_cast<uint64_t>(shape.k) * 4 : 0;
    return tiles ? checked_add(*tiles, order) : std::nullopt;
  });
}

std::unique_ptr<PackedWeight> pack_quant_weight(const WeightSpec& spec, DeviceMemory& memory,
                                                Uploader& uploader) {
  const WeightShape shape = shape_of(spec, check_weight(spec));
  auto weight = std::make_unique<QuantWeight>(shape, memory.allocate(quant_weight_bytes(shape)));
  const QuantLayout& layout = weight->layout();
  auto* const device = static_cast<std::byte*>(const_cast<void*>(weight->data()));
  const std::vector<int64_t> rows = stored_rows(layout.matrix);
  const auto unit = static_cast<size_t>(kTileRows / kQuantTile * layout.tile_bytes());
  uploader.write(device, layout.matrix.stored_rows() / kTileRows, unit,
                 [&](int64_t first, int64_t count, std::byte* to) {
                   QuantTileWriter writer(spec, layout, rows);
                   for (int64_t i = 0; i < count; ++i, to += unit) {
                     pause_packing(spec);
                     writer.write((first + i) * kTileRows, to);
                   }
                 });
  if (spec.quant.reordered) {
    const std::vector<int32_t>& order = spec.parts.front().codes->order();
    uploader.write(device + layout.order_at(), order.data(), order.size() * sizeof(int32_t));
  }
  return weight;
}

std::unique_ptr<PackedWeight> restore_quant_weight(
    const WeightShape& shape, Backend::Buffer contents,
    const std::function<void(const void* device, void* host, size_t bytes)>& read) {
  HEADRACE_CHECK(contents.bytes == quant_weight_bytes(shape), contents.bytes);
  auto weight = std::make_unique<QuantWeight>(shape, std::move(contents));
  if (!shape.quant.reordered) return weight;
  std::vector<int32_t> order(static_cast<size_t>(shape.k));
  read(static_cast<const std::byte*>(weight->data()) + weight->layout().order_at(), order.data(),
       order.size() * sizeof(int32_t));
  check_order(order.data(), shape.k);
  return weight;
}

}  // namespace headrace::cuda
