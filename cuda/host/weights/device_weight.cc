#include "cuda/host/weights/device_weight.h"

#include <cstring>

#include "backend/checks/op_checks.h"
#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "tensor/finite.h"

namespace headrace::cuda {

namespace {

/// `count` floats as `dtype`.
void store_elements(const float* from, int64_t count, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  auto* out = reinterpret_cast<uint16_t*>(to);
  const auto convert = dtype == DType::kBF16 ? &f32_to_bf16 : &f32_to_f16;
  for (int64_t i = 0; i < count; ++i) out[i] = convert(from[i]);
}

const WeightPart& part_of(const WeightSpec& spec, int64_t* row) {
  for (const WeightPart& part : spec.parts) {
    if (*row < part.n) return part;
    *row -= part.n;
  }
  HEADRACE_CHECK(false, *row);
  return spec.parts.front();
}

/// Row `row` of the stacked parts, of all experts, as the storage dtype. `wide` has room for k
/// floats.
void read_row(const WeightSpec& spec, int64_t row, int64_t k, float* wide, std::byte* to) {
  int64_t own = row;
  const WeightPart& part = part_of(spec, &own);
  if (part.dtype == spec.storage && !part.transposed) {
    const size_t element = dtype_size(part.dtype);
    const int64_t first = own * part.row_stride;
    const auto* from =
        static_cast<const std::byte*>(part.data) + static_cast<size_t>(first) * element;
    std::memcpy(to, from, static_cast<size_t>(k) * element);
    if (!all_finite(to, part.dtype, k)) refuse_numbers({part, first, 1, k}, part.dtype);
    return;
  }
  read_weight_row(spec, row, 0, k, wide);
  store_elements(wide, k, spec.storage, to);
}

WeightLayout layout_of(const WeightShape& shape) {
  return {.n = shape.n, .k = shape.k, .gate_up = shape.use == WeightUse::kGateUp};
}

/// Which row of the experts' matrices is stored where; -1: padding.
std::vector<int64_t> stored_rows(const WeightLayout& layout, int32_t experts) {
  const int64_t stored = layout.stored_rows();
  std::vector<int64_t> out(static_cast<size_t>(stored * experts), -1);
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t i = 0; i < layout.n; ++i) {
      out[static_cast<size_t>(expert * stored + layout.stored_row(i))] = expert * layout.n + i;
    }
  }
  return out;
}

/// Uploads rows of `row_bytes` each, of which `k` elements are the spec's and the rest zeros.
void upload_rows(const WeightSpec& spec, const std::vector<int64_t>& rows, int64_t k,
                 size_t row_bytes, void* device, Uploader& uploader) {
  const size_t used = static_cast<size_t>(k) * dtype_size(spec.storage);
  uploader.write(device, static_cast<int64_t>(rows.size()), row_bytes,
                 [&](int64_t first, int64_t count, std::byte* to) {
                   pause_packing(spec);
                   std::vector<float> wide(static_cast<size_t>(k));
                   for (int64_t i = 0; i < count; ++i, to += row_bytes) {
                     const int64_t row = rows[static_cast<size_t>(first + i)];
                     if (row < 0) {
                       std::memset(to, 0, row_bytes);
                       continue;
                     }
                     read_row(spec, row, k, wide.data(), to);
                     std::memset(to + used, 0, row_bytes - used);
                   }
                 });
}

std::vector<int64_t> all_rows(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = i;
  return out;
}

}  // namespace

DeviceWeight::DeviceWeight(const WeightShape& shape, Backend::Buffer memory)
    : PackedWeight(shape.n, shape.k, shape.storage, memory.data, memory.bytes, shape.experts),
      layout_(layout_of(shape)),
      memory_(std::move(memory)) {}

DeviceLora::DeviceLora(const LoraSpec& spec, std::vector<Part> parts, int64_t scratch_columns,
                       Backend::Buffer memory)
    : PackedLora(spec.n, spec.k, scratch_columns, memory.bytes),
      parts_(std::move(parts)),
      storage_(spec.storage),
      memory_(std::move(memory)) {}

std::string device_weight_layout() {
  return str_cat("cuda-1-", kWeightRowUnit, "x", kWeightColUnit, "-", kGateUpGroup);
}

size_t device_weight_bytes(const WeightShape& shape) {
  HEADRACE_CHECK(shape.quant.bits == 0, shape.quant.bits);
  const WeightLayout layout = layout_of(shape);
  return checked_weight_bytes(shape, [&] {
    const auto row = static_cast<uint64_t>(layout.stride()) * dtype_size(shape.storage);
    const auto one = checked_mul(row, static_cast<uint64_t>(layout.stored_rows()));
    return one ? checked_mul(*one, static_cast<uint64_t>(shape.experts)) : one;
  });
}

std::unique_ptr<PackedWeight> pack_device_weight(const WeightSpec& spec, DeviceMemory& memory,
                                                 Uploader& uploader) {
  const WeightExtent extent = check_weight(spec);
  for (const WeightPart& part : spec.parts) HEADRACE_CHECK(part.codes == nullptr, "see require()");
  const WeightShape shape = shape_of(spec, extent);
  auto weight = std::make_unique<DeviceWeight>(shape, memory.allocate(device_weight_bytes(shape)));
  const WeightLayout& layout = weight->layout();
  upload_rows(spec, stored_rows(layout, spec.experts), extent.k,
              static_cast<size_t>(layout.stride()) * dtype_size(spec.storage),
              const_cast<void*>(weight->data()), uploader);
  return weight;
}

TensorView pack_device_vector(const WeightPart& part, DType dtype, DeviceMemory& memory,
                              Uploader& uploader, Backend::Buffer* owner) {
  check_vector(part);
  std::vector<float> wide(static_cast<size_t>(part.n));
  read_vector(part, dtype, wide.data());
  *owner = memory.allocate(static_cast<size_t>(part.n) * dtype_size(dtype));
  const auto element = static_cast<size_t>(dtype_size(dtype));
  uploader.write(owner->data, part.n, element, [&](int64_t first, int64_t count, std::byte* to) {
    store_elements(wide.data() + first, count, dtype, to);
  });
  return TensorView(owner->data, dtype, {part.n});
}

std::unique_ptr<PackedLora> pack_device_lora(const LoraSpec& spec, DeviceMemory& memory,
                                             Uploader& uploader) {
  check_lora_spec(spec);
  constexpr size_t kAlignment = 256;
  const size_t element = dtype_size(spec.storage);
  const auto bytes_of = [&](const WeightPart& part) {
    return round_up(static_cast<size_t>(part.n) * static_cast<size_t>(part.k) * element,
                    kAlignment);
  };
  size_t bytes = 0;
  for (const LoraPart& part : spec.parts) bytes += bytes_of(part.a) + bytes_of(part.b);
  Backend::Buffer buffer = memory.allocate(bytes);
  auto* at = static_cast<std::byte*>(buffer.data);
  const auto place = [&](const WeightPart& part) {
    void* const data = at;
    const WeightSpec one{.parts = {part}, .storage = spec.storage};
    upload_rows(one, all_rows(part.n), part.k, static_cast<size_t>(part.k) * element, data,
                uploader);
    at += bytes_of(part);
    return data;
  };
  std::vector<DeviceLora::Part> parts;
  int64_t scratch_columns = 0;
  for (const LoraPart& part : spec.parts) {
    const void* const a = place(part.a);
    const void* const b = place(part.b);
    parts.push_back({a, b, static_cast<int32_t>(part.a.n), static_cast<int32_t>(part.b.n),
                     static_cast<int32_t>(part.column), static_cast<int32_t>(scratch_columns),
                     part.scale});
    scratch_columns += round_up(part.a.n, kLoraRankUnit);
  }
  uploader.flush();
  return std::make_unique<DeviceLora>(spec, std::move(parts), scratch_columns, std::move(buffer));
}

}  // namespace headrace::cuda
