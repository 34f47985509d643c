#include "cpp/model/golden_case.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "base/check.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/safetensors.h"

namespace headrace {

namespace fs = std::filesystem;

std::string read_golden_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::vector<float>> read_golden_arrays(const fs::path& path) {
  const std::string bytes = read_golden_text(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::string header = bytes.substr(8, length);
  const char* data = bytes.data() + 8 + length;
  std::map<std::string, std::vector<float>> arrays;
  for (const auto& entry :
       parse_safetensors_header(header, bytes.size() - 8 - length, path.string())) {
    std::vector<float> values((entry.end - entry.begin) / sizeof(float));
    std::memcpy(values.data(), data + entry.begin, entry.end - entry.begin);
    arrays.emplace(entry.name, std::move(values));
  }
  return arrays;
}

std::vector<std::string> golden_case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(HEADRACE_GOLDEN_DIR)) {
    if (fs::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool can_share(const ModelConfig& config, int32_t count) {
  const int32_t kv = config.num_kv_heads;
  const bool heads = config.num_heads % count == 0 && (kv % count == 0 || count % kv == 0);
  const StoredQuantization& stored = config.stored_quantization;
  const bool all_float4 = stored.method == StoredMethod::kMxfp4;
  const bool groups = stored.bits != 0 || all_float4 || stored.method == StoredMethod::kMxfp4Blocks;
  const bool widths = (!groups || config.intermediate_size >= 32 * count) &&
                      (!all_float4 || config.num_heads * config.head_dim % (32 * count) == 0);
  const bool states =
      config.state.delta.key_heads % count == 0 && config.state.scan.groups % count == 0;
  return config.qk_norm_kind != QkNorm::kRow && heads && widths && states;
}

GoldenCase load_golden_case(const std::string& name) {
  GoldenCase out;
  out.name = name;
  out.folder = fs::path(HEADRACE_GOLDEN_DIR) / name;
  const Json json = Json::parse(read_golden_text(out.folder / "golden.json"));
  auto arrays = read_golden_arrays(out.folder / "golden.safetensors");
  out.storage = json.at("storage");
  out.twin_of = json.value("twin_of", "");
  out.steps = json.at("steps").get<std::vector<int32_t>>();
  out.inv_freq = json.at("rope").at("inv_freq").get<std::vector<float>>();
  out.attention_factor = json.at("rope").at("attention_factor");
  out.logit_tolerance = json.at("tolerance").at("logits");
  out.logprob_tolerance = json.at("tolerance").at("logprobs");
  out.routed = json.contains("router");
  if (json.contains("bfloat16_error")) {
    const Json& sdpa = json.at("bfloat16_error").at("sdpa");
    const Json& eager = json.at("bfloat16_error").at("eager");
    out.bfloat16.present = true;
    out.bfloat16.logits_rms = sdpa.at("logits_rms");
    out.bfloat16.logits_max =
        std::max(sdpa.at("logits_max").get<double>(), eager.at("logits_max").get<double>());
  }
  for (size_t i = 0; i < json.at("prompts").size(); ++i) {
    const Json& entry = json.at("prompts").at(i);
    const std::string index = str_cat(".", i);
    out.prompts.push_back({entry.at("prompt").get<std::vector<int32_t>>(),
                           entry.at("tokens").get<std::vector<int32_t>>(), arrays["logits" + index],
                           arrays["token_logprobs" + index], arrays["prompt_logprobs" + index]});
  }
  return out;
}

GoldenGuesses load_golden_guesses(const GoldenCase& golden) {
  const Json json = Json::parse(read_golden_text(golden.folder / "mtp.json"));
  auto arrays = read_golden_arrays(golden.folder / "mtp.safetensors");
  GoldenGuesses out;
  out.tolerance = json.at("tolerance");
  for (size_t i = 0; i < json.at("sequences").size(); ++i) {
    const Json& entry = json.at("sequences").at(i);
    const auto ints = [&](const char* key) { return entry.at(key).get<std::vector<int32_t>>(); };
    out.sequences.push_back({ints("tokens"), ints("argmax"), ints("rows"),
                             arrays[str_cat("logits.", i)], ints("guesses"),
                             arrays[str_cat("chain.", i)]});
  }
  return out;
}

}  // namespace headrace
