#include "backend/reference/reference_lora.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

/// float32, rounded to the storage.
class ReferenceLora final : public PackedLora {
 public:
  struct Part {
    std::vector<float> a, b;  // [rank][k], [cols][rank]
    int64_t rank = 0, cols = 0, column = 0;
    double scale = 1.0;
  };

  ReferenceLora(const LoraSpec& spec, std::vector<Part> parts, int64_t scratch_columns,
                Backend::Buffer memory)
      : PackedLora(spec.n, spec.k, scratch_columns, memory.bytes),
        parts_(std::move(parts)),
        memory_(std::move(memory)) {}

  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
  Backend::Buffer memory_;  // counts what the parts hold
};

std::vector<float> rounded(const WeightPart& part, DType storage) {
  const WeightSpec spec{{part}, storage};
  std::vector<float> out(static_cast<size_t>(part.n * part.k));
  for (int64_t i = 0; i < part.n; ++i)
    read_weight_row(spec, i, 0, part.k, &out[size_t(i * part.k)]);
  for (float& x : out) x = round_to(storage, x);
  return out;
}

void add_lora(const ReferenceLora::Part& part, const float* x, int64_t k, float* out) {
  std::vector<double> inner;
  for (int64_t i = 0; i < part.rank; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < k; ++j) sum += static_cast<double>(x[j]) * part.a[size_t(i * k + j)];
    inner.push_back(sum);
  }
  for (int64_t j = 0; j < part.cols; ++j) {
    double sum = 0.0;
    for (int64_t i = 0; i < part.rank; ++i) {
      sum += inner[size_t(i)] * static_cast<double>(part.b[size_t(j * part.rank + i)]);
    }
    out[j] = static_cast<float>(static_cast<double>(out[j]) + part.scale * sum);
  }
}

}  // namespace

std::unique_ptr<PackedLora> reference_pack_lora(const LoraSpec& spec, HostMemory& memory) {
  std::vector<ReferenceLora::Part> parts;
  int64_t scratch_columns = 0;
  size_t floats = 0;
  for (const LoraPart& part : spec.parts) {
    parts.push_back({rounded(part.a, spec.storage), rounded(part.b, spec.storage), part.a.n,
                     part.b.n, part.column, static_cast<double>(part.scale)});
    floats += parts.back().a.size() + parts.back().b.size();
    scratch_columns += round_up(part.a.n, kLoraRankUnit);
  }
  return std::make_unique<ReferenceLora>(spec, std::move(parts), scratch_columns,
                                         memory.allocate(floats * sizeof(float)));
}

void reference_lora(const TensorView& x, std::span<const LoraGroup> groups, const TensorView& out) {
  for (const LoraGroup& group : groups) {
    for (const auto& part : dynamic_cast<const ReferenceLora&>(*group.lora).parts()) {
      for (const int32_t row : group.rows) {
        add_lora(part, x.row<float>(row), x.cols(), out.row<float>(row) + part.column);
      }
    }
  }
}

}  // namespace headrace
