#include "model/sources/stored_layers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/quantized/code_numbers.h"
#include "model/quantized/float4_codes.h"
#include "model/quantized/float8_codes.h"
#include "model/quantized/part_numbers.h"
#include "model/quantized/scaled_float4.h"
#include "model/quantized/scaled_float8.h"
#include "model/quantized/stored_layer_reader.h"

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
    return std::make_unique<ScaledFloat4>(checkpoint, packed_float4(stem, n, k), n, k);
  }
  if (!is_numbers(stored.method)) {
    if (!is_stored_as_codes(stored, checkpoint, part)) return nullptr;
    return std::make_unique<CodeNumbers>(read_stored_layer(stored, checkpoint, stem, n, k));
  }
  const CheckpointTensor* tensor = checkpoint.find(part.name);
  if (tensor == nullptr || tensor->dtype != DType::kF8E4M3) return nullptr;
  return std::make_unique<ScaledFloat8>(stored, checkpoint, stem, n, k);
}

/// A matrix that no backend keeps as codes: heads of one module, perhaps transposed. The module is
/// read once.
void attach_heads(const StoredQuantization& stored, const Checkpoint& checkpoint,
                  MatrixSource& source) {
  const StoredPart& one = source.parts.front();
  if (one.shape.size() != 2) return;
  const int64_t k = one.shape.back();
  const std::shared_ptr<const StoredNumbers> whole =
      find_numbers(stored, checkpoint, one, one.shape.front(), k);
  if (whole == nullptr) return;
  for (StoredPart& part : source.parts) {
    const int64_t first = part.offset / k;
    if (source.transposed) {
      part.numbers = std::make_shared<NumbersAcross>(whole, first);
    } else {
      part.numbers = std::make_shared<NumbersFrom>(whole, first, part.step);
    }
  }
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
    if (module.first > 0) {
      whole = std::make_unique<NumbersFrom>(std::move(whole), module.first, part.step);
    }
    part.numbers = std::move(whole);
  }
}

/// MXFP4 as it comes, where the device keeps it and nothing else is asked for.
bool keeps_float4(const StoredQuantization& stored, const Quantization& quantization) {
  const bool float4 =
      stored.method == StoredMethod::kMxfp4 || stored.method == StoredMethod::kMxfp4Blocks;
  return float4 && quantization.float4_weights && quantization.bits == 0;
}

/// False unless all parts are MXFP4.
bool attach_float4(const StoredQuantization& stored, const Checkpoint& checkpoint,
                   MatrixSource& source) {
  if (source.transposed || source.use == WeightUse::kTiedEmbedding) return false;
  for (const StoredPart& part : source.parts) {
    if (!is_stored_as_codes(stored, checkpoint, part)) return false;
  }
  source.quant = kFloat4Format;
  for (StoredPart& part : source.parts) {
    const Module module = module_of(source, part);
    auto whole = std::make_shared<const ScaledFloat4>(
        checkpoint, packed_float4(stem_of(part), module.n, source.k), module.n, source.k);
    part.codes = std::make_shared<Float4Codes>(std::move(whole), module.first, part.step);
  }
  return true;
}

/// All experts in one tensor, which is checked once.
void attach_blocks(const Checkpoint& checkpoint, bool keeps_codes, MatrixSource& source) {
  const StoredPart& first = source.parts.front();
  if (first.shape.size() != 3 || checkpoint.find(first.name + "_blocks") == nullptr) return;
  const int64_t experts = source.experts, n = source.n();
  const auto whole = std::make_shared<const ScaledFloat4>(
      checkpoint, blocks_float4(first.name, experts, n, source.k), experts * n, source.k);
  if (keeps_codes) source.quant = kFloat4Format;
  for (StoredPart& part : source.parts) {
    const int64_t feature = part.offset / source.k;
    if (keeps_codes) {
      part.codes = std::make_shared<Float4Codes>(whole, feature, part.step);
    } else {
      part.numbers = std::make_shared<NumbersFrom>(whole, feature, part.step);
    }
  }
}

/// FP8 as it comes, where the device multiplies it and nothing else is asked for.
bool keeps_float8(const StoredQuantization& stored, const Quantization& quantization) {
  const bool blocks = stored.block_n == 0 || stored.block_k == kMaxQuantGroup;
  const bool float8 = stored.method == StoredMethod::kFp8 || stored.method == StoredMethod::kFloat8;
  return float8 && blocks && stored.rounded_rows && quantization.code_products &&
         (quantization.bits == 0 || quantization.float8 != Float8::kNone);
}

QuantFormat float8_format(const StoredQuantization& stored) {
  return {
      .bits = 8,
      .group_size = kMaxQuantGroup,
      .activations = stored.block_n == 0 ? Activations::kFloat8Rows : Activations::kFloat8Groups};
}

/// False unless all parts are FP8.
bool attach_float8(const StoredQuantization& stored, const Checkpoint& checkpoint,
                   MatrixSource& source) {
  if (source.transposed || source.use == WeightUse::kTiedEmbedding) return false;
  for (const StoredPart& part : source.parts) {
    const CheckpointTensor* tensor = checkpoint.find(part.name);
    const bool is_float8 = tensor != nullptr && tensor->dtype == DType::kF8E4M3;
    if (!part.name.ends_with(kWeight) || !is_float8) return false;
  }
  source.quant = float8_format(stored);
  for (StoredPart& part : source.parts) {
    const Module module = module_of(source, part);
    auto whole =
        std::make_unique<const ScaledFloat8>(stored, checkpoint, stem_of(part), module.n, source.k);
    part.codes =
        std::make_shared<Float8Codes>(std::move(whole), source.quant, source.k, module.first);
  }
  return true;
}

/// int8 with a scale for each feature, made for rows that are rounded likewise.
bool keeps_int8_rows(const StoredQuantization& stored, const Quantization& quantization) {
  return stored.method == StoredMethod::kInt8 && stored.rounded_rows && stored.group_size == 0 &&
         quantization.code_products;
}

/// Parts of one matrix have their inputs in one order; each expert's may have another. Those that
/// come as they are get theirs, too, where others have one.
void settle_order(const MatrixSource& source, bool reordered, std::vector<StoredLayer>& layers) {
  const size_t each = layers.size() / static_cast<size_t>(source.experts);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].order != layers[i / each * each].order) refuse_parts(source, "g_idx differs");
  }
  for (StoredLayer& layer : layers) {
    if (!reordered || !layer.order.empty()) continue;
    layer.order.resize(static_cast<size_t>(layer.k));
    std::iota(layer.order.begin(), layer.order.end(), 0);
  }
}

void attach_matrix(const StoredQuantization& stored, const Checkpoint& checkpoint,
                   const Quantization& quantization, MatrixSource& source) {
  const bool float4 = keeps_float4(stored, quantization);
  if (stored.method == StoredMethod::kMxfp4Blocks) {
    return attach_blocks(checkpoint, float4, source);
  }
  if (is_numbers(stored.method)) {
    if (float4 && attach_float4(stored, checkpoint, source)) return;
    if (keeps_float8(stored, quantization) && attach_float8(stored, checkpoint, source)) return;
    return attach_numbers(stored, checkpoint, source);
  }
  std::vector<StoredLayer> layers;
  for (const StoredPart& part : source.parts) {
    if (!is_stored_as_codes(stored, checkpoint, part)) continue;
    const int64_t n = module_of(source, part).n;
    layers.push_back(read_stored_layer(stored, checkpoint, stem_of(part), n, source.k));
  }
  if (layers.empty()) return;
  if (layers.size() != source.parts.size()) refuse_parts(source, "only some are quantized");
  const StoredLayer& first = layers.front();
  const bool reordered =
      std::ranges::any_of(layers, [](const StoredLayer& layer) { return !layer.order.empty(); });
  settle_order(source, reordered, layers);
  QuantFormat format{
      .bits = stored.bits,
      .group_size = first.groups() == 1 ? kMaxQuantGroup : kernel_group(first.group_size),
      .f16_scales = true,
      .reordered = reordered,
      .activations = quantization.activations};
  for (const StoredLayer& layer : layers) {
    if (layer.scales.dtype != first.scales.dtype) refuse_parts(source, "the scales' types differ");
    format.zero_points = format.zero_points || has_zero_points(layer);
    format.f16_scales = format.f16_scales && fits_f16(layer);
  }
  if (keeps_int8_rows(stored, quantization) && !format.zero_points) {
    format.f16_scales = false;
    format.activations = Activations::kInt8Rows;
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
                  const Quantization& quantization, ModelSources& sources) {
  if (stored.method == StoredMethod::kNone) return;
  // As likely_format() has them.
  const bool likely = !is_numbers(stored.method) || quantization.bits == 0;
  const auto attach_layer = [&](LayerSources& layer) {
    for (MatrixSource* source : layer.matrices()) {
      if (source->role == MatrixRole::kGates) attach_heads(stored, checkpoint, *source);
      if (source->role != MatrixRole::kLinear) continue;
      if (likely) source->quant = {};
      attach_matrix(stored, checkpoint, quantization, *source);
    }
    if (layer.feed_forward != nullptr) layer.feed_forward->fold_orders();
  };
  for (LayerSources& layer : sources.layers) attach_layer(layer);
  if (sources.mtp) {
    attach_layer(sources.mtp->layer);
    attach_matrix(stored, checkpoint, quantization, sources.mtp->join);
  }
  if (!sources.head.empty()) attach_matrix(stored, checkpoint, quantization, sources.head);
  if (!sources.vision) return;
  // A convolution is never stored as codes.
  MatrixSource& patches = sources.vision->patches.matrix;
  if (patches.parts.front().shape.empty()) attach_matrix(stored, checkpoint, quantization, patches);
  for (MatrixSource* source : sources.vision->linears()) {
    attach_matrix(stored, checkpoint, quantization, *source);
  }
}

QuantFormat likely_format(const StoredQuantization& stored, const Quantization& quantization,
                          bool is_experts) {
  if (keeps_float4(stored, quantization)) {
    return is_experts || stored.method == StoredMethod::kMxfp4 ? kFloat4Format : QuantFormat{};
  }
  const bool float8 = keeps_float8(stored, quantization) && quantization.bits == 0;
  if (float8 && !is_experts) return float8_format(stored);
  if (stored.method == StoredMethod::kNone || is_numbers(stored.method)) {
    return layer_format(quantization);
  }
  return {.bits = stored.bits,
          .group_size = kernel_group(stored.group_size),
          .activations = quantization.activations};
}

}  // namespace headrace
