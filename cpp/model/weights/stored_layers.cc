#include "model/weights/stored_layers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/stored/scaled_float4.h"
#include "model/stored/scaled_float8.h"
#include "model/stored/stored_layer_reader.h"

namespace headrace {

namespace {

constexpr std::string_view kWeight = ".weight";

std::string stem_of(const StoredPart& part) {
  HEADRACE_CHECK(part.name.ends_with(kWeight), part.name);
  return part.name.substr(0, part.name.size() - kWeight.size());
}

bool is_stored_as_codes(const StoredQuantization& stored, const Checkpoint& checkpoint,
                        const StoredPart& part) {
  if (!part.name.ends_with(kWeight)) return false;  // all experts in one tensor
  const CheckpointTensor* tensor = checkpoint.find(stem_of(part) + codes_suffix(stored.method));
  return tensor != nullptr && (stored.method != StoredMethod::kInt8 || tensor->dtype == DType::kI8);
}

/// What a part is of.
struct Module {
  int64_t first = 0;  ///< feature of the part
  int64_t n = 0;      ///< features in all
};

Module module_of(const MatrixSource& source, const StoredPart& part) {
  if (part.shape.empty()) return {0, part.n};
  if (source.transposed) return {part.offset, part.shape.back()};
  return {part.offset / source.k, part.shape.front()};
}

/// Features of a module from one on.
class NumbersFrom final : public StoredNumbers {
 public:
  NumbersFrom(std::unique_ptr<const StoredNumbers> whole, int64_t first)
      : whole_(std::move(whole)), first_(first) {
    tensors_ = whole_->tensors();
  }

  DType dtype() const noexcept override { return whole_->dtype(); }
  void read(int64_t feature, int64_t first, int64_t count, float* out) const override {
    whole_->read(first_ + feature, first, count, out);
  }

 private:
  std::unique_ptr<const StoredNumbers> whole_;
  int64_t first_;
};

/// The largest group of the kernels that lies within one of the file's.
int32_t kernel_group(int64_t group_size) {
  for (const int32_t size : {128, 64}) {
    if (group_size % size == 0) return size;
  }
  return 32;
}

bool has_zero_points(const StoredLayer& layer) {
  if (layer.zeros.data == nullptr) return false;
  for (int64_t g = 0; g < layer.groups(); ++g) {
    for (int64_t n = 0; n < layer.n; ++n) {
      if (layer.zero(n, g) != quant_zero(layer.bits)) return true;
    }
  }
  return false;
}

/// float32 scales fit float16, to 11 bits, unless they are very small or large.
bool fits_f16(const StoredLayer& layer) {
  if (layer.scales.dtype != DType::kF32) return layer.scales.dtype == DType::kF16;
  for (int64_t n = 0; n < layer.n; ++n) {
    for (int64_t g = 0; g < layer.groups(); ++g) {
      const float size = std::abs(layer.scale(n, g));
      if (size != 0.0f && !(size >= 0x1p-14f && size <= 65504.0f)) return false;
    }
  }
  return true;
}

[[noreturn]] void refuse_parts(const MatrixSource& source, const char* what) {
  constexpr size_t kShownNames = 3;
  std::string names;
  for (size_t i = 0; i < std::min(source.parts.size(), kShownNames); ++i) {
    names += (names.empty() ? "" : ", ") + stem_of(source.parts[i]);
  }
  if (source.parts.size() > kShownNames) names += ", ...";
  throw_error(ErrorCode::kUnsupported, "of ", names, " ", what,
              ", but they are one matrix here: quantize them alike, or load the checkpoint that "
              "isn't quantized.");
}

/// Of a whole module. Null for one that is stored as the model's dtype.
std::unique_ptr<const StoredNumbers> find_numbers(const StoredQuantization& stored,
                                                  const Checkpoint& checkpoint,
                                                  const StoredPart& part, int64_t n, int64_t k) {
  const std::string stem = stem_of(part);
  if (stored.method == StoredMethod::kMxfp4) {
    if (checkpoint.find(stem + codes_suffix(stored.method)) == nullptr) return nullptr;
    return std::make_unique<ScaledFloat4>(checkpoint, stem, n, k);
  }
  const CheckpointTensor* tensor = checkpoint.find(part.name);
  if (tensor == nullptr || tensor->dtype != DType::kF8E4M3) return nullptr;
  return std::make_unique<ScaledFloat8>(stored, checkpoint, stem, n, k);
}

/// Part by part: others of the matrix may be stored as the model's dtype.
void attach_numbers(const StoredQuantization& stored, const Checkpoint& checkpoint,
                    MatrixSource& source) {
  if (source.transposed) return;
  for (StoredPart& part : source.parts) {
    if (!part.name.ends_with(kWeight)) continue;  // all experts in one tensor
    const Module module = module_of(source, part);
    auto whole = find_numbers(stored, checkpoint, part, module.n, source.k);
    if (whole == nullptr) continue;
    if (module.first > 0) whole = std::make_unique<NumbersFrom>(std::move(whole), module.first);
    part.numbers = std::move(whole);
  }
}

void attach_matrix(const StoredQuantization& stored, const Checkpoint& checkpoint,
                   MatrixSource& source) {
  if (is_numbers(stored.method)) return attach_numbers(stored, checkpoint, source);
  std::vector<StoredLayer> layers;
  for (const StoredPart& part : source.parts) {
    if (!is_stored_as_codes(stored, checkpoint, part)) continue;
    const int64_t n = module_of(source, part).n;
    layers.push_back(read_stored_layer(stored, checkpoint, stem_of(part), n, source.k));
  }
  if (layers.empty()) return;
  if (layers.size() != source.parts.size()) refuse_parts(source, "only some are quantized");
  const StoredLayer& first = layers.front();
  QuantFormat format{
      .bits = stored.bits,
      .group_size = first.groups() == 1 ? kMaxQuantGroup : kernel_group(first.group_size),
      .f16_scales = true,
      .reordered = !first.order.empty()};
  for (const StoredLayer& layer : layers) {
    if (layer.order != first.order) refuse_parts(source, "g_idx differs");
    if (layer.scales.dtype != first.scales.dtype) refuse_parts(source, "the scales' types differ");
    format.zero_points = format.zero_points || has_zero_points(layer);
    format.f16_scales = format.f16_scales && fits_f16(layer);
  }
  source.quant = format;
  for (size_t i = 0; i < layers.size(); ++i) {
    StoredPart& part = source.parts[i];
    part.codes =
        std::make_shared<StoredCodes>(std::move(layers[i]), format, module_of(source, part).first);
  }
}

}  // namespace

void attach_codes(const StoredQuantization& stored, const Checkpoint& checkpoint,
                  ModelSources& sources) {
  if (stored.method == StoredMethod::kNone) return;
  for (LayerSources& layer : sources.layers) {
    for (MatrixSource* source : layer.matrices()) {
      if (source->role != MatrixRole::kLinear) continue;
      if (!is_numbers(stored.method)) source->quant = {};
      attach_matrix(stored, checkpoint, *source);
    }
  }
  if (!sources.head.empty()) attach_matrix(stored, checkpoint, sources.head);
  if (!sources.vision) return;
  // A convolution is never stored as codes.
  MatrixSource& patches = sources.vision->patches.matrix;
  if (patches.parts.front().shape.empty()) attach_matrix(stored, checkpoint, patches);
  for (MatrixSource* source : sources.vision->linears()) attach_matrix(stored, checkpoint, *source);
}

QuantFormat likely_format(const StoredQuantization& stored) {
  if (stored.method == StoredMethod::kNone || is_numbers(stored.method)) return {};
  return {.bits = stored.bits, .group_size = kernel_group(stored.group_size)};
}

}  // namespace headrace
