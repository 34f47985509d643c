#include "benchmarks/cuda/startup/checkpoint_writer.h"

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

namespace headrace::bench {

namespace {

constexpr size_t kPool = size_t{1} << 22;  // numbers
constexpr float kSpread = 0.02f;

struct Tensor {
  std::string name;
  std::vector<int64_t> dims;

  size_t elements() const {
    size_t out = 1;
    for (const int64_t dim : dims) out *= static_cast<size_t>(dim);
    return out;
  }
};

std::vector<Tensor> tensors(const ModelShape& s) {
  std::vector<Tensor> out = {{"model.embed_tokens.weight", {s.vocab, s.hidden}},
                             {"model.norm.weight", {s.hidden}}};
  if (!s.tied) out.push_back({"lm_head.weight", {s.vocab, s.hidden}});
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      out.push_back({layer + norm + ".weight", {s.hidden}});
    }
    out.push_back({layer + "self_attn.q_proj.weight", {q, s.hidden}});
    out.push_back({layer + "self_attn.k_proj.weight", {kv, s.hidden}});
    out.push_back({layer + "self_attn.v_proj.weight", {kv, s.hidden}});
    out.push_back({layer + "self_attn.o_proj.weight", {s.hidden, q}});
    out.push_back({layer + "mlp.gate_proj.weight", {s.intermediate, s.hidden}});
    out.push_back({layer + "mlp.up_proj.weight", {s.intermediate, s.hidden}});
    out.push_back({layer + "mlp.down_proj.weight", {s.hidden, s.intermediate}});
  }
  return out;
}

uint16_t bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

std::vector<uint16_t> random_pool() {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-kSpread, kSpread);
  std::vector<uint16_t> out(kPool);
  for (uint16_t& value : out) value = bf16(uniform(random));
  return out;
}

std::string header(const std::vector<Tensor>& all) {
  nlohmann::ordered_json out;
  size_t offset = 0;
  for (const Tensor& tensor : all) {
    const size_t end = offset + sizeof(uint16_t) * tensor.elements();
    out[tensor.name] = {{"dtype", "BF16"}, {"shape", tensor.dims}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = out.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void write_checkpoint(const ModelShape& shape, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << shape.config_json();
  const std::vector<Tensor> all = tensors(shape);
  const std::string text = header(all);
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  const auto put = [&file](const void* data, size_t bytes) {
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  const uint64_t length = text.size();
  put(&length, sizeof length);
  put(text.data(), text.size());
  const std::vector<uint16_t> pool = random_pool(), ones(kPool, bf16(1.0f));
  for (const Tensor& tensor : all) {
    const std::vector<uint16_t>& numbers = tensor.dims.size() == 1 ? ones : pool;
    for (size_t left = tensor.elements(); left > 0 && file;) {
      const size_t count = std::min(left, kPool);
      put(numbers.data(), sizeof(uint16_t) * count);
      left -= count;
    }
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + (folder / "model.safetensors").string());
}

}  // namespace headrace::bench
