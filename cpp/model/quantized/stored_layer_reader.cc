#include "model/quantized/stored_layer_reader.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "model/checkpoint/expect_tensor.h"

namespace headrace {

namespace {

const std::byte* bytes_of(const CheckpointTensor& tensor) {
  return static_cast<const std::byte*>(tensor.data);
}

/// Reads the tensors of one layer.
class LayerReader {
 public:
  LayerReader(const StoredQuantization& stored, const Checkpoint& checkpoint, std::string stem,
              int64_t n, int64_t k)
      : stored_(stored), checkpoint_(checkpoint), stem_(std::move(stem)) {
    layer_.n = n;
    layer_.k = k;
    layer_.bits = stored.bits;
    layer_.group_size = stored.group_size == 0 ? k : std::min<int64_t>(stored.group_size, k);
    per_word_ = 32 / stored.bits;
  }

  StoredLayer read() {
    switch (stored_.method) {
      case StoredMethod::kGptq:
        read_gptq();
        break;
      case StoredMethod::kAwq:
        read_awq();
        break;
      case StoredMethod::kPacked:
        read_packed();
        break;
      case StoredMethod::kInt8:
        read_int8();
        break;
      case StoredMethod::kNone:
      case StoredMethod::kFloat8:
      case StoredMethod::kFp8:
      case StoredMethod::kMxfp4:
      case StoredMethod::kMxfp4Blocks:
        HEADRACE_CHECK(false, stem_);
    }
    check_zeros();
    accept_empty_bias();
    return std::move(layer_);
  }

 private:
  void read_gptq() {
    const auto& codes = words("qweight", ceil_div(layer_.k, per_word_), layer_.n);
    layer_.codes = {.data = bytes_of(codes), .word_stride = 4 * layer_.n, .line_stride = 4};
    read_group_rows(false);
    layer_.zeros.added = stored_.zeros_less_one ? 1 : 0;
    if (checkpoint_.find(stem_ + ".g_idx") != nullptr) read_order("g_idx");
  }

  void read_awq() {
    const int64_t wide = ceil_div(layer_.n, per_word_);
    const auto& codes = words("qweight", layer_.k, wide);
    layer_.codes = {.data = bytes_of(codes),
                    .word_stride = 4,
                    .line_stride = 4 * wide,
                    .by_feature = true,
                    .awq_order = true};
    read_group_rows(true);
  }

  /// qzeros and scales with a row for each group.
  void read_group_rows(bool awq_order) {
    const int64_t wide = ceil_div(layer_.n, per_word_);
    const auto& zeros = words("qzeros", layer_.groups(), wide);
    layer_.zeros = {.data = bytes_of(zeros),
                    .group_stride = 4 * wide,
                    .word_stride = 4,
                    .awq_order = awq_order};
    const auto& scales = tensor("scales", {layer_.groups(), layer_.n}, kScaleTypes);
    const auto size = static_cast<int64_t>(dtype_size(scales.dtype));
    layer_.scales = {.data = bytes_of(scales),
                     .dtype = scales.dtype,
                     .feature_stride = size,
                     .group_stride = layer_.n * size,
                     .tensor = scales.name};
  }

  void read_packed() {
    const int64_t wide = ceil_div(layer_.k, per_word_);
    const auto& codes = words("weight_packed", layer_.n, wide);
    layer_.codes = {.data = bytes_of(codes), .word_stride = 4, .line_stride = 4 * wide};
    check_shape_tensor();
    read_feature_rows();
    if (checkpoint_.find(stem_ + ".weight_g_idx") != nullptr) read_order("weight_g_idx");
  }

  void read_int8() {
    const auto& codes = tensor("weight", {layer_.n, layer_.k}, {DType::kI8});
    layer_.codes = {.data = bytes_of(codes),
                    .word_stride = 4,
                    .line_stride = layer_.k,
                    .line_bytes = layer_.k,
                    .is_signed = true};
    read_feature_rows();
  }

  /// weight_scale and weight_zero_point with a row for each feature.
  void read_feature_rows() {
    const int64_t groups = layer_.groups();
    const auto& scales = tensor("weight_scale", {layer_.n, groups}, kScaleTypes);
    const auto size = static_cast<int64_t>(dtype_size(scales.dtype));
    layer_.scales = {.data = bytes_of(scales),
                     .dtype = scales.dtype,
                     .feature_stride = groups * size,
                     .group_stride = size,
                     .tensor = scales.name};
    const CheckpointTensor* zeros = checkpoint_.find(stem_ + ".weight_zero_point");
    if (zeros == nullptr) return;
    if (zeros->dtype == DType::kI8) {
      tensor("weight_zero_point", {layer_.n, groups}, {DType::kI8});
      layer_.zeros = {.group_stride = 1,
                      .word_stride = groups,
                      .bytes = true,
                      .added = quant_zero(layer_.bits)};
    } else {
      words("weight_zero_point", ceil_div(layer_.n, per_word_), groups);
      layer_.zeros = {.group_stride = 4, .word_stride = 4 * groups};
    }
    layer_.zeros.data = bytes_of(*zeros);
  }

  void check_shape_tensor() {
    if (checkpoint_.find(stem_ + ".weight_shape") == nullptr) return;
    const auto& shape = tensor("weight_shape", {2}, {DType::kI64, DType::kI32});
    for (const size_t i : {size_t{0}, size_t{1}}) {
      int64_t value = 0;  // little endian
      const size_t size = dtype_size(shape.dtype);
      std::memcpy(&value, bytes_of(shape) + i * size, size);
      if (value != (i == 0 ? layer_.n : layer_.k)) {
        throw_error(ErrorCode::kCorruptFile, "tensor ", shape.name, " says ", value,
                    "; config.json asks for a weight of [", layer_.n, ", ", layer_.k, "].");
      }
    }
  }

  /// By the group of each input: the inputs of group 0 first, and so on, unless they lie so anyway.
  void read_order(const char* suffix) {
    const auto& entry = tensor(suffix, {layer_.k}, {DType::kI32});
    std::vector<int32_t> group(static_cast<size_t>(layer_.k));
    std::memcpy(group.data(), entry.data, group.size() * sizeof(int32_t));
    for (const int32_t g : group) {
      if (g >= 0 && g < layer_.groups()) continue;
      throw_error(ErrorCode::kCorruptFile, "tensor ", entry.name, " names group ", g, " of ",
                  layer_.groups(), ".");
    }
    if (layer_.groups() == 1 || std::ranges::is_sorted(group)) {
      check_full_groups(entry.name, group);
      return;
    }
    std::vector<int32_t> order(group.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int32_t input) { return group[size_t(input)]; });
    std::ranges::sort(group);
    check_full_groups(entry.name, group);
    layer_.order = std::move(order);
  }

  void check_full_groups(const std::string& name, const std::vector<int32_t>& sorted) const {
    for (int64_t i = 0; i < layer_.k; ++i) {
      if (sorted[static_cast<size_t>(i)] == i / layer_.group_size) continue;
      throw_error(ErrorCode::kUnsupported, "tensor ", name, " doesn't put ", layer_.group_size,
                  " inputs into each group, as group_size in config.json says: quantize the model "
                  "again, or load the one that isn't.");
    }
  }

  /// No zero point may be beyond the codes, but for the 16 that a stored 15 less 1 means.
  void check_zeros() const {
    if (layer_.zeros.data == nullptr) return;
    const int32_t most = layer_.bits == 8 ? 255 : 16;
    if (!layer_.zeros.bytes && (1 << layer_.bits) - 1 + layer_.zeros.added <= most) return;
    for (int64_t n = 0; n < layer_.n; ++n) {
      for (int64_t g = 0; g < layer_.groups(); ++g) {
        const int32_t zero = layer_.zero(n, g);
        if (zero >= 0 && zero <= most) continue;
        throw_error(ErrorCode::kCorruptFile, stem_, " has the zero point ", zero, " for feature ",
                    n, ", group ", g, ", of codes of ", layer_.bits, " bits.");
      }
    }
  }

  /// Some tools give every layer a bias, of zeros where the model has none.
  void accept_empty_bias() {
    const CheckpointTensor* bias = checkpoint_.find(stem_ + ".bias");
    if (bias == nullptr) return;
    const auto* at = bytes_of(*bias);
    const bool empty =
        std::all_of(at, at + bias->bytes, [](std::byte b) { return b == std::byte{}; });
    if (empty) layer_.tensors.push_back(bias->name);
  }

  const CheckpointTensor& words(const char* suffix, int64_t rows, int64_t cols) {
    return tensor(suffix, {rows, cols}, {DType::kI32});
  }

  const CheckpointTensor& tensor(const char* suffix, const std::vector<int64_t>& shape,
                                 std::initializer_list<DType> dtypes) {
    const auto& found = expect_tensor(checkpoint_, str_cat(stem_, ".", suffix), shape);
    if (std::ranges::find(dtypes, found.dtype) == dtypes.end()) {
      throw_error(ErrorCode::kUnsupported, "tensor ", found.name, " is stored as ",
                  dtype_name(found.dtype), ": this build reads ", dtype_name(*dtypes.begin()),
                  " there.");
    }
    layer_.tensors.push_back(found.name);
    return found;
  }

  static constexpr std::initializer_list<DType> kScaleTypes = {DType::kF16, DType::kBF16,
                                                               DType::kF32};
  const StoredQuantization& stored_;
  const Checkpoint& checkpoint_;
  std::string stem_;
  int64_t per_word_;
  StoredLayer layer_;
};

}  // namespace

const char* codes_suffix(StoredMethod method) {
  if (method == StoredMethod::kPacked || method == StoredMethod::kMxfp4) return ".weight_packed";
  return method == StoredMethod::kInt8 ? ".weight" : ".qweight";
}

StoredLayer read_stored_layer(const StoredQuantization& stored, const Checkpoint& checkpoint,
                              const std::string& stem, int64_t n, int64_t k) {
  return LayerReader(stored, checkpoint, stem, n, k).read();
}

}  // namespace headrace
