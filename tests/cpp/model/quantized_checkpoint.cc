#include "cpp/model/quantized_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"

namespace headrace {

namespace {

constexpr int64_t kGroup = 32;

/// w[n, k] = scales[n, g] * (codes[n, k] - zeros[n, g]), g = group_of[k].
struct Layer {
  int32_t bits;
  int64_t n, k;
  std::vector<int32_t> group_of, codes, zeros;
  std::vector<float> scales;  // as float16 has them

  int64_t groups() const { return (k + kGroup - 1) / kGroup; }
  size_t pair(int64_t row, int64_t group) const { return size_t(row * groups() + group); }
};

/// `module`: "model.layers.0.mlp", whose matrices with as many inputs have them in one order.
Layer quantize(const std::vector<float>& weight, int64_t n, int64_t k, Tool tool,
               const std::string& module) {
  Layer out{.bits = tool == Tool::kInt8 ? 8 : 4, .n = n, .k = k};
  for (int64_t i = 0; i < k; ++i) out.group_of.push_back(static_cast<int32_t>(i / kGroup));
  if (tool == Tool::kGptqActOrder) {
    uint32_t seed = static_cast<uint32_t>(k);
    for (const char c : module) seed = seed * 31 + static_cast<uint8_t>(c);
    std::shuffle(out.group_of.begin(), out.group_of.end(), std::mt19937(seed));
  }
  const int32_t top = (1 << out.bits) - 1;
  out.codes.resize(weight.size());
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t g = 0; g < out.groups(); ++g) {
      float low = 0.0f, high = 0.0f;
      for (int64_t i = 0; i < k; ++i) {
        if (out.group_of[size_t(i)] != g) continue;
        low = std::min(low, weight[size_t(row * k + i)]);
        high = std::max(high, weight[size_t(row * k + i)]);
      }
      const bool symmetric = tool == Tool::kInt8;
      const float wide =
          symmetric ? std::max(high, -low) / 127.0f : (high - low) / static_cast<float>(top);
      const float scale = f16_to_f32(f32_to_f16(std::max(wide, 1e-4f)));
      const int32_t zero =
          symmetric ? 128 : std::clamp(static_cast<int32_t>(std::lround(-low / scale)), 1, top);
      out.scales.push_back(scale);
      out.zeros.push_back(zero);
      for (int64_t i = 0; i < k; ++i) {
        if (out.group_of[size_t(i)] != g) continue;
        const auto code = static_cast<int32_t>(std::lround(weight[size_t(row * k + i)] / scale));
        out.codes[size_t(row * k + i)] = std::clamp(code + zero, 0, top);
      }
    }
  }
  return out;
}

std::vector<float> dequantized(const Layer& layer) {
  std::vector<float> out;
  for (int64_t i = 0; i < layer.n * layer.k; ++i) {
    const size_t pair = layer.pair(i / layer.k, layer.group_of[size_t(i % layer.k)]);
    out.push_back(layer.scales[pair] *
                  static_cast<float>(layer.codes[size_t(i)] - layer.zeros[pair]));
  }
  return out;
}

std::vector<int32_t> transposed(const std::vector<int32_t>& values, int64_t rows, int64_t cols) {
  std::vector<int32_t> out;
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) out.push_back(values[size_t(i * cols + j)]);
  }
  return out;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Eight int4 of a row to a word: the one at `order[i]` to place i.
std::string words(const std::vector<int32_t>& values, const std::vector<size_t>& order) {
  std::vector<uint32_t> out(values.size() / 8);
  for (size_t i = 0; i < values.size(); ++i) {
    out[i / 8] |= static_cast<uint32_t>(values[i / 8 * 8 + order[i % 8]]) << (4 * (i % 8));
  }
  return bytes_of(out);
}

const std::vector<size_t> kInOrder = {0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<size_t> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

/// int4 [n, k] to words along n, as [k, n] has them: [k / 8, n], each eight k of a feature.
std::vector<TensorToWrite> gptq(const std::string& stem, const Layer& l) {
  std::vector<int32_t> columns;  // of the words: [k / 8][n][8]
  for (int64_t i = 0; i < l.n * l.k; ++i) {
    const int64_t word = i / 8, k = word / l.n * 8 + i % 8, n = word % l.n;
    columns.push_back(l.codes[size_t(n * l.k + k)]);
  }
  std::vector<int32_t> zeros = transposed(l.zeros, l.n, l.groups());
  for (int32_t& zero : zeros) --zero;
  std::vector<float> scales;
  for (int64_t i = 0; i < l.n * l.groups(); ++i) {
    scales.push_back(l.scales[l.pair(i % l.n, i / l.n)]);
  }
  return {{stem + ".qweight", DType::kI32, {l.k / 8, l.n}, words(columns, kInOrder)},
          {stem + ".qzeros", DType::kI32, {l.groups(), l.n / 8}, words(zeros, kInOrder)},
          {stem + ".scales", DType::kF16, {l.groups(), l.n}, encode(scales, DType::kF16)},
          {stem + ".g_idx", DType::kI32, {l.k}, bytes_of(l.group_of)}};
}

std::vector<TensorToWrite> awq(const std::string& stem, const Layer& l) {
  std::vector<TensorToWrite> out = gptq(stem, l);
  out.pop_back();
  out[0] = {stem + ".qweight",
            DType::kI32,
            {l.k, l.n / 8},
            words(transposed(l.codes, l.n, l.k), kAwqOrder)};
  out[1].bytes = words(transposed(l.zeros, l.n, l.groups()), kAwqOrder);
  return out;
}

/// compressed-tensors.
std::vector<TensorToWrite> packed(const std::string& stem, const Layer& l) {
  std::vector<int8_t> zeros;
  for (const int32_t zero : l.zeros) zeros.push_back(static_cast<int8_t>(zero - 8));
  return {{stem + ".weight_packed", DType::kI32, {l.n, l.k / 8}, words(l.codes, kInOrder)},
          {stem + ".weight_scale", DType::kF16, {l.n, l.groups()}, encode(l.scales, DType::kF16)},
          {stem + ".weight_zero_point", DType::kI8, {l.n, l.groups()}, bytes_of(zeros)},
          {stem + ".weight_shape", DType::kI64, {2}, bytes_of(std::vector<int64_t>{l.n, l.k})}};
}

std::vector<TensorToWrite> int8(const std::string& stem, const Layer& l) {
  std::vector<int8_t> codes;
  for (const int32_t code : l.codes) codes.push_back(static_cast<int8_t>(code - 128));
  return {{stem + ".weight", DType::kI8, {l.n, l.k}, bytes_of(codes)},
          {stem + ".weight_scale", DType::kF32, {l.n, l.groups()}, encode(l.scales, DType::kF32)}};
}

Json compressed(const char* format, int bits, bool symmetric) {
  const Json weights = {{"num_bits", bits},     {"type", "int"},          {"strategy", "group"},
                        {"group_size", kGroup}, {"symmetric", symmetric}, {"dynamic", false}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

Json quantization_config(Tool tool) {
  switch (tool) {
    case Tool::kGptq:
    case Tool::kGptqActOrder:
      return {{"quant_method", "gptq"},
              {"bits", 4},
              {"group_size", kGroup},
              {"desc_act", tool == Tool::kGptqActOrder}};
    case Tool::kAwq:
      return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", kGroup}, {"version", "gemm"}};
    case Tool::kPacked:
      return compressed("pack-quantized", 4, false);
    case Tool::kInt8:
      return compressed("int-quantized", 8, true);
  }
  return {};
}

std::vector<TensorToWrite> tensors_of(Tool tool, const std::string& stem, const Layer& layer) {
  switch (tool) {
    case Tool::kGptq:
    case Tool::kGptqActOrder:
      return gptq(stem, layer);
    case Tool::kAwq:
      return awq(stem, layer);
    case Tool::kPacked:
      return packed(stem, layer);
    case Tool::kInt8:
      return int8(stem, layer);
  }
  return {};
}

void write(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace

void write_quantized(const std::filesystem::path& from, Tool tool,
                     const std::filesystem::path& quantized, const std::filesystem::path& plain) {
  const Checkpoint checkpoint(from);
  std::vector<TensorToWrite> codes, numbers;
  constexpr std::string_view kWeight = ".weight";
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.name;
    std::vector<float> values(tensor.bytes / static_cast<size_t>(dtype_size(tensor.dtype)));
    read_elements(tensor.data, tensor.dtype, 1, static_cast<int64_t>(values.size()), values.data());
    const TensorToWrite whole{name, DType::kF32, tensor.shape, bytes_of(values)};
    const bool expert = name.find("experts.") != std::string::npos;  // Mixtral's: w1, w2, w3
    const bool linear = expert || name.find("_proj") != std::string::npos;
    if (!linear || tensor.shape.size() != 2) {
      codes.push_back(whole);
      numbers.push_back(whole);
      continue;
    }
    const std::string stem = name.substr(0, name.size() - kWeight.size());
    const Layer layer =
        quantize(values, tensor.shape[0], tensor.shape[1], tool, stem.substr(0, stem.rfind('.')));
    numbers.push_back(whole);
    numbers.back().bytes = bytes_of(dequantized(layer));
    for (TensorToWrite& one : tensors_of(tool, stem, layer)) codes.push_back(std::move(one));
  }
  Json config = Json::parse(read_small_file(from / "config.json", 1 << 20));
  write(plain / "config.json", config.dump());
  config["quantization_config"] = quantization_config(tool);
  write(quantized / "config.json", config.dump());
  write(plain / "model.safetensors", safetensors_file(numbers));
  write(quantized / "model.safetensors", safetensors_file(codes));
}

}  // namespace headrace
