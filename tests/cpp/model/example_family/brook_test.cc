// The family that docs/developing.md adds: it reads its own names and windows, and computes what a
// known family computes from the same numbers.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

constexpr std::pair<const char*, const char*> kNames[] = {
    {"input_layernorm", "norm_1"},       {"post_attention_layernorm", "norm_2"},
    {"self_attn.q_norm", "attn.norm_q"}, {"self_attn.k_norm", "attn.norm_k"},
    {"self_attn.q_proj", "attn.query"},  {"self_attn.k_proj", "attn.key"},
    {"self_attn.v_proj", "attn.value"},  {"self_attn.o_proj", "attn.out"},
    {"mlp.gate_proj", "ffn.gate"},       {"mlp.up_proj", "ffn.up"},
    {"mlp.down_proj", "ffn.down"}};

std::string brook_name(std::string name) {
  for (const auto& [theirs, ours] : kNames) {
    const size_t at = name.find(theirs);
    if (at != std::string::npos) return name.replace(at, std::string(theirs).size(), ours);
  }
  return name;
}

/// A golden Qwen3 checkpoint, written as the example's family names it: o has a bias, of zeros.
void write_brook(const GoldenCase& qwen3, const Json& config, const TempFolder& folder) {
  std::vector<TensorToWrite> tensors;
  const Checkpoint checkpoint(qwen3.folder);
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    tensors.push_back({brook_name(tensor.name), tensor.dtype, tensor.shape,
                       std::string(static_cast<const char*>(tensor.data), tensor.bytes)});
  }
  const auto hidden = config["hidden_size"].get<int64_t>();
  const std::vector<float> zeros(static_cast<size_t>(hidden), 0.0f);
  for (int64_t layer = 0; layer < config["num_hidden_layers"].get<int64_t>(); ++layer) {
    tensors.push_back({"model.layers." + std::to_string(layer) + ".attn.out.bias",
                       DType::kF32,
                       {hidden},
                       encode(zeros, DType::kF32)});
  }
  folder.write("model.safetensors", safetensors_file(tensors));
  folder.write("config.json", config.dump());
}

Json brook_config(const GoldenCase& qwen3) {
  const std::string text =
      read_small_file(std::filesystem::path(qwen3.folder) / "config.json", 1 << 20);
  const Json theirs = Json::parse(text);
  Json out{{"model_type", "brook"}, {"local_window", 1 << 20}};
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers",
        "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "rope_theta",
        "tie_word_embeddings", "max_position_embeddings", "torch_dtype"}) {
    out[key] = theirs[key];
  }
  return out;
}

TEST(ExampleFamily, ComputesWhatAKnownFamilyComputes) {
  const GoldenCase qwen3 = load_golden_case("qwen3");
  const TempFolder folder;
  write_brook(qwen3, brook_config(qwen3), folder);
  const std::vector<int32_t> prompt = qwen3.prompts.back().prompt;
  for (const std::string& isa : available_cpu_isas()) {
    DecoderHarness theirs(isa, qwen3.folder, {});
    DecoderHarness ours(isa, folder.path().string(), {});
    EXPECT_EQ(ours.step({{.sequence = 0, .tokens = prompt}}),
              theirs.step({{.sequence = 0, .tokens = prompt}}))
        << isa;
  }
}

TEST(ExampleFamily, ReadsItsOwnKeysAndRefusesOthers) {
  Json config = brook_config(load_golden_case("qwen3"));
  config["local_window"] = 7;
  EXPECT_EQ(parse_model_config(config.dump(), "").layer_window, (std::vector<int32_t>{0, 7}));
  config["logit_scale"] = 2.0;
  expect_error(ErrorCode::kUnsupported, {"logit_scale"},
               [&] { parse_model_config(config.dump(), ""); });
}

TEST(ExampleFamily, AMissingTensorIsNamed) {
  const GoldenCase qwen3 = load_golden_case("qwen3");
  const ModelConfig config = parse_model_config(brook_config(qwen3).dump(), "");
  const Checkpoint checkpoint(qwen3.folder);
  expect_error(ErrorCode::kNotFound, {"model.layers.0.attn.query.weight"},
               [&] { detect_naming(config, checkpoint); });
}

}  // namespace
}  // namespace headrace
