#include "cuda/host/weights/quant_weight.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "cuda/host/weights/quant_tile_writer.h"

namespace headrace::cuda {

namespace {

// The version of the layout: raise it when the same numbers would lie elsewhere.
constexpr const char* kLayoutName = "cuda-quant-1";

QuantLayout quant_layout_of(const WeightShape& shape) {
  return {{.n = shape.n, .k = shape.k, .gate_up = shape.use == WeightUse::kGateUp}, shape.quant};
}

void check_activations(const QuantFormat& format) {
  if (format.activations == Activations::kWhole || rounds_rows(format)) return;
  throw_error(ErrorCode::kUnsupported, "the CUDA backend has no kernels for W", format.bits,
              "A8, weights of ", format.bits, " bits with activations that are rounded: use W",
              format.bits, "A16 (Activations::kWhole), or leave the weights unquantized.");
}

void check_format(const WeightShape& shape) {
  const QuantFormat& format = shape.quant;
  check_activations(format);
  HEADRACE_CHECK(!format.float4, "MXFP4 is read as numbers here");
  HEADRACE_CHECK(format.bits == 8 || format.bits == 4, format.bits);
  HEADRACE_CHECK(
      format.group_size == 32 || format.group_size == 64 || format.group_size == kMaxQuantGroup,
      format.group_size);
  HEADRACE_CHECK(
      !rounds_rows(format) ||
          (format.bits == 8 && format.group_size == kQuantUnit && !format.zero_points &&
           !format.f16_scales && !format.reordered && shape.use != WeightUse::kTiedEmbedding),
      format.bits);
  HEADRACE_CHECK(shape.use != WeightUse::kEmbedding);
}

std::vector<int64_t> stored_rows(const WeightLayout& layout) {
  std::vector<int64_t> out(static_cast<size_t>(layout.stored_rows()), -1);
  for (int64_t i = 0; i < layout.n; ++i) out[static_cast<size_t>(layout.stored_row(i))] = i;
  return out;
}

/// Each expert's matrix as a weight of its own.
std::vector<WeightSpec> each_expert(const WeightSpec& spec) {
  std::vector<WeightSpec> out;
  for (int32_t expert = 0; expert < spec.experts; ++expert) {
    const std::span<const WeightPart> parts = expert_parts(spec, expert);
    out.push_back({.parts = {parts.begin(), parts.end()},
                   .storage = spec.storage,
                   .use = spec.use,
                   .quant = spec.quant,
                   .between = spec.between});
  }
  return out;
}

void upload_tiles(const WeightSpec& spec, const QuantLayout& layout, std::byte* device,
                  Uploader& uploader) {
  const std::vector<WeightSpec> experts = each_expert(spec);
  const std::vector<int64_t> rows = stored_rows(layout.matrix);
  const auto unit = static_cast<size_t>(kTileRows / kQuantTile * layout.tile_bytes());
  const int64_t units = layout.matrix.stored_rows() / kTileRows;  // of one
  uploader.write(device, units * spec.experts, unit,
                 [&](int64_t first, int64_t count, std::byte* to) {
                   for (int64_t i = first; i < first + count;) {
                     const WeightSpec& own = experts[static_cast<size_t>(i / units)];
                     QuantTileWriter writer(own, layout, rows);
                     for (const int64_t end = std::min(first + count, (i / units + 1) * units);
                          i < end; ++i, to += unit) {
                       pause_packing(own);
                       writer.write(i % units * kTileRows, to);
                     }
                   }
                 });
}

}  // namespace

QuantWeight::QuantWeight(const WeightShape& shape, Backend::Buffer memory)
    : PackedWeight(shape.n, shape.k, shape.storage, memory.data, memory.bytes, shape.experts),
      layout_(quant_layout_of(shape)),
      memory_(std::move(memory)) {}

std::string quant_weight_layout(const QuantFormat& format) {
  check_activations(format);
  return str_cat(kLayoutName, rounds_rows(format) ? "-rounded-rows-" : "-", kQuantTile, "x",
                 kQuantUnit, "-", kGateUpGroup);
}

size_t quant_weight_bytes(const WeightShape& shape) {
  check_format(shape);
  return checked_weight_bytes(shape, [&]() -> std::optional<uint64_t> {
    // Sides are at most 2^40 here: sums of a few of them are exact.
    const QuantLayout layout = quant_layout_of(shape);
    const auto tiles = checked_mul(static_cast<uint64_t>(layout.tiles()),
                                   static_cast<uint64_t>(layout.tile_bytes()));
    const auto experts = static_cast<uint64_t>(shape.experts);
    const auto all = tiles ? checked_mul(*tiles, experts) : std::nullopt;
    const uint64_t inputs = shape.quant.reordered ? static_cast<uint64_t>(shape.k) * experts : 0;
    return all ? checked_add(*all, inputs * sizeof(int32_t)) : std::nullopt;
  });
}

std::unique_ptr<PackedWeight> pack_quant_weight(const WeightSpec& spec, DeviceMemory& memory,
                                                Uploader& uploader) {
  const WeightShape shape = shape_of(spec, check_weight(spec));
  auto weight = std::make_unique<QuantWeight>(shape, memory.allocate(quant_weight_bytes(shape)));
  const QuantLayout& layout = weight->layout();
  auto* const device = static_cast<std::byte*>(const_cast<void*>(weight->data()));
  upload_tiles(spec, layout, device, uploader);
  if (!spec.quant.reordered) return weight;
  std::vector<int32_t> orders;
  for (int32_t expert = 0; expert < spec.experts; ++expert) {
    const std::vector<int32_t>& own = expert_parts(spec, expert).front().codes->order();
    orders.insert(orders.end(), own.begin(), own.end());
  }
  uploader.write(device + layout.order_at(spec.experts), orders.data(),
                 orders.size() * sizeof(int32_t));
  return weight;
}

std::unique_ptr<PackedWeight> restore_quant_weight(
    const WeightShape& shape, Backend::Buffer contents,
    const std::function<void(const void* device, void* host, size_t bytes)>& read) {
  HEADRACE_CHECK(contents.bytes == quant_weight_bytes(shape), contents.bytes);
  auto weight = std::make_unique<QuantWeight>(shape, std::move(contents));
  if (!shape.quant.reordered) return weight;
  std::vector<int32_t> orders(static_cast<size_t>(shape.k * shape.experts));
  read(static_cast<const std::byte*>(weight->data()) + weight->layout().order_at(shape.experts),
       orders.data(), orders.size() * sizeof(int32_t));
  check_order(orders.data(), shape.experts, shape.k);
  return weight;
}

}  // namespace headrace::cuda
