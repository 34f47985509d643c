#include "cuda/host/support/rounded_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/mapped_file.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "tensor/float8.h"

namespace headrace {

namespace {

struct Block {
  int64_t n, k;
};

Block block_of(RoundedTool tool, int64_t n, int64_t k) {
  if (tool == RoundedTool::kFloat8Tensor) return {n, k};
  return tool == RoundedTool::kFloat8Blocks ? Block{128, 128} : Block{1, k};
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<TensorToWrite> tensors_of(RoundedTool tool, const std::string& stem,
                                      const std::vector<float>& weight, int64_t n, int64_t k) {
  const bool int8 = tool == RoundedTool::kInt8Channel;
  const float most = int8 ? 127.0f : 448.0f;
  const Block block = block_of(tool, n, k);
  const int64_t rows = (n + block.n - 1) / block.n, columns = (k + block.k - 1) / block.k;
  std::vector<float> scales(static_cast<size_t>(rows * columns), 1e-4f);
  const auto scale = [&](int64_t i, int64_t j) -> float& {
    return scales[static_cast<size_t>(i / block.n * columns + j / block.k)];
  };
  for (int64_t i = 0; i < n * k; ++i) {
    float& own = scale(i / k, i % k);
    own = std::max(own, std::abs(weight[static_cast<size_t>(i)]) / most);
  }
  std::string codes;
  for (int64_t i = 0; i < n * k; ++i) {
    const float wanted = weight[static_cast<size_t>(i)] / scale(i / k, i % k);
    codes.push_back(int8 ? static_cast<char>(std::lround(wanted))
                         : static_cast<char>(f32_to_e4m3(wanted)));
  }
  const bool blocks = tool == RoundedTool::kFloat8Blocks;
  std::vector<int64_t> shape;
  if (tool != RoundedTool::kFloat8Tensor) shape = {rows, columns};
  return {{stem + ".weight", int8 ? DType::kI8 : DType::kF8E4M3, {n, k}, codes},
          {stem + (blocks ? ".weight_scale_inv" : ".weight_scale"), DType::kF32, shape,
           bytes_of(scales)}};
}

Json quantization_config(RoundedTool tool) {
  Json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  if (tool == RoundedTool::kFloat8Tensor) return fp8;
  if (tool == RoundedTool::kFloat8Blocks) {
    fp8["weight_block_size"] = {128, 128};
    return fp8;
  }
  const bool int8 = tool == RoundedTool::kInt8Channel;
  const char* type = int8 ? "int" : "float";
  const Json weights = {{"num_bits", 8},
                        {"type", type},
                        {"strategy", "channel"},
                        {"symmetric", true},
                        {"dynamic", false}};
  const Json activations = {{"num_bits", 8},
                            {"type", type},
                            {"strategy", "token"},
                            {"symmetric", true},
                            {"dynamic", true}};
  const Json group = {
      {"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}};
  return {{"quant_method", "compressed-tensors"},
          {"format", int8 ? "int-quantized" : "float-quantized"},
          {"config_groups", {{"group_0", group}}}};
}

}  // namespace

void write_rounded(const std::filesystem::path& from, RoundedTool tool,
                   const std::filesystem::path& to,
                   const std::function<void(TensorToWrite&)>& change) {
  const Checkpoint checkpoint(from);
  std::vector<TensorToWrite> out;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::vector<float> values(tensor.bytes / static_cast<size_t>(dtype_size(tensor.dtype)));
    read_elements(tensor.data, tensor.dtype, 1, static_cast<int64_t>(values.size()), values.data());
    const bool expert = tensor.name.find("experts.") != std::string::npos;  // Mixtral's: w1, w2, w3
    const bool linear = tensor.name.find("_proj") != std::string::npos;
    if (!(expert || linear) || tensor.shape.size() != 2) {
      out.push_back({tensor.name, DType::kF32, tensor.shape, bytes_of(values)});
      continue;
    }
    const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
    for (TensorToWrite& one : tensors_of(tool, stem, values, tensor.shape[0], tensor.shape[1])) {
      out.push_back(std::move(one));
    }
  }
  if (change) {
    for (TensorToWrite& tensor : out) change(tensor);
  }
  Json config = Json::parse(read_small_file(from / "config.json", 1 << 20));
  config["quantization_config"] = quantization_config(tool);
  std::ofstream(to / "config.json") << config.dump();
  std::ofstream(to / "model.safetensors", std::ios::binary) << safetensors_file(out);
}

}  // namespace headrace
