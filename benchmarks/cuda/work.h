#pragma once

// What there is to do, in bytes and operations, and the work itself: shapes and requests.

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headrace::bench {

/// Bits of a weight with its share of a scale: of the layers' linears, and of the head.
struct WeightBits {
  double layers = 16, head = 16;
};

/// As `quantization` of the options makes them: "", "wint4", in groups of 32 and a head of 8 bits
/// in groups of 64, or "fp8", with a head in bf16; throws std::invalid_argument for others.
WeightBits weight_bits(const std::string& quantization);

/// A decoder, by the names of config.json.
struct ModelShape {
  std::string name;
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0;
  bool tied = false;               ///< the head is the embedding
  int64_t experts = 0, top_k = 0;  ///< of each layer, with `intermediate` each; 0: dense layers

  int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Experts of a layer that one of `rows` rows chooses, on average, if all are as likely; of a
  /// dense layer 1.
  double used_experts(int64_t rows) const {
    if (experts == 0) return 1;
    const auto count = static_cast<double>(experts), chosen = static_cast<double>(top_k);
    return count * (1 - std::pow(1 - chosen / count, static_cast<double>(rows)));
  }
  /// Weights that `rows` tokens meet, routers and head apart; norms and rows of the embedding left
  /// out.
  double layer_parameters(int64_t rows) const {
    const int64_t attention = hidden * (qkv() + heads * head_dim);
    const double mlp = static_cast<double>(int64_t{3} * hidden * intermediate) * used_experts(rows);
    return static_cast<double>(layers) * (static_cast<double>(attention) + mlp);
  }
  int64_t router_parameters() const { return layers * hidden * experts; }
  int64_t head_parameters() const { return hidden * vocab; }
  int64_t kv_bytes_per_token() const { return layers * 2 * kv_heads * head_dim * 2; }
  /// The least that a step of `sequences` decodes must read, at `context` tokens each; routers are
  /// kept in float32.
  double decode_bytes(int64_t sequences, double context, const WeightBits& bits = {}) const {
    return (bits.layers * layer_parameters(sequences) +
            bits.head * static_cast<double>(head_parameters())) /
               8 +
           4.0 * static_cast<double>(router_parameters()) +
           static_cast<double>(sequences * kv_bytes_per_token()) * context;
  }
  std::string config_json() const;
};

/// "llama-3.1-8b", "llama-3.2-1b", "qwen3-30b-a3b", "toy" or "toy-moe"; throws
/// std::invalid_argument for others.
ModelShape model_shape(const std::string& name);

/// A vision tower as Qwen2.5-VL's, by the names of config.json: windows in most blocks, a gated
/// feed-forward.
struct TowerShape {
  std::string name;
  int64_t width = 0, intermediate = 0, depth = 0, heads = 0, patch = 14, merge = 2;
  int64_t window = 112;       ///< pixels
  std::vector<int64_t> full;  ///< blocks without windows
  int64_t hidden = 0;         ///< of the decoder, which has one small layer
  int64_t window_rows = 64;   ///< patches of a window

  /// Operations for an image of so many patches, in whole windows.
  double flops(int64_t patches) const;
  std::string config_json() const;
};

/// "qwen2.5-vl" or "toy"; throws std::invalid_argument for others.
TowerShape tower_shape(const std::string& name);

/// The two products of attention over `rows` rows in segments of `segment`.
constexpr double segment_flops(int64_t rows, int64_t segment, int64_t width) {
  const double whole = static_cast<double>(rows / segment) * static_cast<double>(segment * segment);
  const double rest = static_cast<double>(rows % segment) * static_cast<double>(rows % segment);
  return 4.0 * (whole + rest) * static_cast<double>(width);
}

/// A linear layer's weight.
struct LinearShape {
  std::string name;
  int64_t n = 0, k = 0;
};

/// Those of one layer, and the head, of a dense shape.
std::vector<LinearShape> linear_shapes(const ModelShape& shape);

constexpr double linear_flops(int64_t rows, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
}

/// The two products of causal attention over `rows` tokens, the half that the mask leaves.
constexpr double prefill_flops(int64_t rows, int64_t heads, int64_t head_dim) {
  const double pairs = static_cast<double>(rows) * static_cast<double>(rows + 1) / 2;
  return 4.0 * pairs * static_cast<double>(heads * head_dim);
}

/// Keys and values of one layer, in 16 bits.
constexpr double kv_bytes(int64_t sequences, int64_t context, int64_t kv_heads, int64_t head_dim) {
  return 4.0 * static_cast<double>(sequences) * static_cast<double>(context * kv_heads * head_dim);
}

double median(std::vector<double> values);
double geometric_mean(const std::vector<double>& values);

/// Tokens of a request: prompt, output.
using RequestLength = std::pair<int32_t, int32_t>;

/// Lengths like those of ShareGPT's conversations as serving benchmarks sample them (prompts up to
/// 1024 tokens, 2048 in all; means of 215 and 198 tokens over 1,000 requests): log-normal, cut off
/// there. The same on every machine.
std::vector<RequestLength> sharegpt_like(int32_t count, uint64_t seed = 0);

}  // namespace headrace::bench
