#include "backend/cpu/weights/packed_lora.h"

#include <cstring>
#include <utility>

#include "backend/checks/op_checks.h"
#include "backend/host/weight_source.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

/// Writes numbers in storage dtype.
class Store {
 public:
  Store(DType storage, std::byte* to) : storage_(storage), to_(to) {}

  void put(int64_t at, float value) const {
    if (storage_ == DType::kF32) {
      std::memcpy(to_ + at * 4, &value, 4);
      return;
    }
    const uint16_t half = storage_ == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(to_ + at * 2, &half, 2);
  }

 private:
  DType storage_;
  std::byte* to_;
};

/// [ceil(n / cols)][k][cols] of a weight [n, k], from memory that is zero.
void pack_columns(const WeightPart& part, DType storage, int64_t cols, std::byte* to) {
  const WeightSpec spec{{part}, storage};
  const Store store(storage, to);
  std::vector<float> row(static_cast<size_t>(part.k));
  for (int64_t n = 0; n < part.n; ++n) {
    read_weight_row(spec, n, 0, part.k, row.data());
    const int64_t first = n / cols * cols * part.k + n % cols;
    for (int64_t i = 0; i < part.k; ++i) store.put(first + i * cols, row[static_cast<size_t>(i)]);
  }
}

}  // namespace

CpuLora::CpuLora(const LoraSpec& spec, std::vector<Part> parts, int64_t scratch_columns,
                 Backend::Buffer memory)
    : PackedLora(spec.n, spec.k, scratch_columns, memory.bytes),
      storage_(spec.storage),
      parts_(std::move(parts)),
      memory_(std::move(memory)) {
  for (const Part& part : parts_) {
    blocks_ += part.blocks;
    panels_ += part.panels;
  }
}

std::unique_ptr<CpuLora> pack_cpu_lora(const LoraSpec& spec, const LoraKernels& kernels,
                                       HostMemory& memory) {
  check_lora_spec(spec);
  const auto element = static_cast<int64_t>(dtype_size(spec.storage));
  const auto a_bytes = [&](const CpuLora::Part& part) {
    return part.blocks * spec.k * kernels.lanes * element;
  };
  const auto b_bytes = [&](const CpuLora::Part& part) {
    return part.panels * part.rank * kernels.panel_cols * element;
  };
  std::vector<CpuLora::Part> parts;
  int64_t scratch_columns = 0, bytes = 0;
  for (const LoraPart& source : spec.parts) {
    CpuLora::Part& part = parts.emplace_back();
    part.rank = source.a.n;
    part.column = source.column;
    part.cols = source.b.n;
    part.scratch_column = scratch_columns;
    part.blocks = ceil_div(part.rank, int64_t{kernels.lanes});
    part.panels = ceil_div(part.cols, int64_t{kernels.panel_cols});
    part.scale = source.scale;
    scratch_columns += round_up(part.rank, kLoraRankUnit);
    bytes += a_bytes(part) + b_bytes(part);
  }
  Backend::Buffer buffer = memory.allocate(static_cast<size_t>(bytes));
  auto* data = static_cast<std::byte*>(buffer.data);
  std::memset(data, 0, static_cast<size_t>(bytes));
  for (size_t i = 0; i < parts.size(); ++i) {
    CpuLora::Part& part = parts[i];
    pack_columns(spec.parts[i].a, spec.storage, kernels.lanes, data);
    part.a = data;
    data += a_bytes(part);
    pack_columns(spec.parts[i].b, spec.storage, kernels.panel_cols, data);
    part.b = data;
    data += b_bytes(part);
  }
  return std::make_unique<CpuLora>(spec, std::move(parts), scratch_columns, std::move(buffer));
}

}  // namespace headrace
