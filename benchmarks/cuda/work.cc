#include "benchmarks/cuda/work.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>

namespace headrace::bench {

namespace {

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}

  /// SplitMix64, in (0, 1).
  double uniform() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
  }
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }
  int32_t log_normal(double median, double deviation, int32_t least, int32_t most) {
    const double value = median * std::exp(deviation * normal());
    return static_cast<int32_t>(std::clamp(value, double(least), double(most)));
  }

 private:
  uint64_t state_;
};

}  // namespace

WeightBits weight_bits(const std::string& quantization) {
  if (quantization.empty()) return {};
  if (quantization == "wint4") return {4 + 16.0 / 32, 8 + 16.0 / 64};
  if (quantization == "fp8") return {8, 16};
  throw std::invalid_argument("no bits are known of " + quantization);
}

std::string ModelShape::config_json() const {
  nlohmann::json out{{"model_type", "llama"},
                     {"architectures", {"LlamaForCausalLM"}},
                     {"hidden_size", hidden},
                     {"intermediate_size", intermediate},
                     {"num_hidden_layers", layers},
                     {"num_attention_heads", heads},
                     {"num_key_value_heads", kv_heads},
                     {"head_dim", head_dim},
                     {"vocab_size", vocab},
                     {"max_position_embeddings", 131072},
                     {"rms_norm_eps", 1e-5},
                     {"rope_theta", 500000.0},
                     {"tie_word_embeddings", tied},
                     {"torch_dtype", "bfloat16"},
                     {"hidden_act", "silu"},
                     {"bos_token_id", 1},
                     {"eos_token_id", 2}};
  if (experts > 0) {
    out.update({{"model_type", "qwen3_moe"},
                {"architectures", {"Qwen3MoeForCausalLM"}},
                {"moe_intermediate_size", intermediate},
                {"num_experts", experts},
                {"num_experts_per_tok", top_k},
                {"norm_topk_prob", true},
                {"decoder_sparse_step", 1}});
  }
  return out.dump();
}

ModelShape model_shape(const std::string& name) {
  if (name == "llama-3.1-8b") return {name, 4096, 14336, 32, 32, 8, 128, 128256, false};
  if (name == "llama-3.2-1b") return {name, 2048, 8192, 16, 32, 8, 64, 128256, true};
  if (name == "qwen3-30b-a3b") {
    return {name, 2048, 768, 48, 32, 4, 128, 151936, false, 128, 8};
  }
  if (name == "toy") return {name, 128, 256, 2, 4, 2, 64, 640, false};
  if (name == "toy-moe") return {name, 128, 64, 2, 4, 2, 64, 640, false, 6, 2};
  throw std::invalid_argument("no shape is called " + name +
                              ": llama-3.1-8b, llama-3.2-1b, qwen3-30b-a3b, toy and toy-moe are");
}

double TowerShape::flops(int64_t patches) const {
  const auto p = static_cast<double>(patches);
  const auto wide = static_cast<double>(width * merge * merge);
  const auto w = static_cast<double>(width), inner = static_cast<double>(intermediate);
  const double linears = static_cast<double>(6 * patch * patch) * w +
                         static_cast<double>(depth) * w * (4 * w + 3 * inner);
  const double merger =
      p / static_cast<double>(merge * merge) * wide * (wide + static_cast<double>(hidden));
  const auto whole = static_cast<double>(full.size());
  return 2 * (p * linears + merger) + whole * segment_flops(patches, patches, width) +
         (static_cast<double>(depth) - whole) * segment_flops(patches, window_rows, width);
}

std::string TowerShape::config_json() const {
  const int64_t head_dim = 64, decoder_heads = hidden / head_dim;
  return nlohmann::json{{"model_type", "qwen2_5_vl"},
                        {"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
                        {"hidden_act", "silu"},
                        {"hidden_size", hidden},
                        {"intermediate_size", 256},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", decoder_heads},
                        {"num_key_value_heads", decoder_heads},
                        {"vocab_size", 640},
                        {"max_position_embeddings", 32768},
                        {"rms_norm_eps", 1e-6},
                        {"rope_theta", 1000000.0},
                        {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {8, 12, 12}}}},
                        {"tie_word_embeddings", true},
                        {"torch_dtype", "bfloat16"},
                        {"bos_token_id", 1},
                        {"eos_token_id", 2},
                        {"image_token_id", 3},
                        {"video_token_id", 4},
                        {"vision_start_token_id", 5},
                        {"vision_end_token_id", 6},
                        {"vision_config",
                         {{"depth", depth},
                          {"fullatt_block_indexes", full},
                          {"hidden_act", "silu"},
                          {"hidden_size", width},
                          {"in_chans", 3},
                          {"intermediate_size", intermediate},
                          {"num_heads", heads},
                          {"out_hidden_size", hidden},
                          {"patch_size", patch},
                          {"spatial_merge_size", merge},
                          {"spatial_patch_size", patch},
                          {"temporal_patch_size", 2},
                          {"tokens_per_second", 2},
                          {"window_size", window}}}}
      .dump();
}

TowerShape tower_shape(const std::string& name) {
  if (name == "qwen2.5-vl") {
    return {.name = name,
            .width = 1280,
            .intermediate = 3420,
            .depth = 32,
            .heads = 16,
            .full = {7, 15, 23, 31},
            .hidden = 3584};
  }
  if (name == "toy") {
    return {.name = name,
            .width = 80,
            .intermediate = 68,
            .depth = 2,
            .heads = 1,
            .patch = 4,
            .window = 16,
            .full = {1},
            .hidden = 64,
            .window_rows = 16};
  }
  throw std::invalid_argument("no tower is called " + name + ": qwen2.5-vl and toy are");
}

std::vector<LinearShape> linear_shapes(const ModelShape& shape) {
  return {{"qkv", shape.qkv(), shape.hidden},
          {"o", shape.hidden, shape.heads * shape.head_dim},
          {"gate_up", 2 * shape.intermediate, shape.hidden},
          {"down", shape.hidden, shape.intermediate},
          {"head", shape.vocab, shape.hidden}};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::vector<RequestLength> sharegpt_like(int32_t count, uint64_t seed) {
  constexpr int32_t kLeast = 4, kMostPrompt = 1024, kMost = 2048;
  Numbers numbers(seed);
  std::vector<RequestLength> out;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t prompt = numbers.log_normal(100, 1.45, kLeast, kMostPrompt);
    const int32_t output = numbers.log_normal(112, 1.0, kLeast, kMost - prompt);
    out.emplace_back(prompt, output);
  }
  return out;
}

}  // namespace headrace::bench
