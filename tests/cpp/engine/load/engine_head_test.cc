// tie_word_embeddings beside a head in the checkpoint: what the file holds counts.

#include <gtest/gtest.h>

#include "cpp/engine/load/packed_model.h"
#include "cpp/model/quantized_checkpoint.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

ModelOptions from_checkpoint(const PackedModel& model) {
  ModelOptions options = model.options();
  options.packed_weights.clear();
  return options;
}

/// null: the key goes.
void set_tied(const PackedModel& model, const Json& tied) {
  Json config = Json::parse(model.read("config.json"));
  if (tied.is_null()) {
    config.erase("tie_word_embeddings");
  } else {
    config["tie_word_embeddings"] = tied;
  }
  model.write("config.json", config.dump());
}

/// Of each family, with a head of other numbers than the embedding's.
class OwnHead : public testing::TestWithParam<const char*> {};

TEST_P(OwnHead, CountsWhateverTheConfigSays) {
  const PackedModel model(GetParam());
  const ModelOptions options = from_checkpoint(model);
  ASSERT_EQ(Json::parse(model.read("config.json")).at("tie_word_embeddings"), false);
  const Answer want = answer_of(options);
  for (const Json& tied : {Json(true), Json()}) {
    SCOPED_TRACE(tied.dump());
    set_tied(model, tied);
    EXPECT_EQ(answer_of(options), want);
  }
  set_tied(model, true);
  model.pack(options);
  EXPECT_EQ(answer_of(model.options()), want) << "packed";
}

INSTANTIATE_TEST_SUITE_P(Goldens, OwnHead,
                         testing::Values("llama", "mistral_window", "mixtral_window",
                                         "qwen2_window", "qwen2_moe", "qwen3_window", "qwen3_moe",
                                         "ernie4_5_bias", "ernie4_5_bias_paddle",
                                         "ernie4_5_moe_interval_paddle"));

TEST(OwnHeadQuantized, CountsBesideQuantizedLayers) {
  const PackedModel model("llama_bf16");
  const TempFolder quantized, plain;
  write_quantized(model.options().path, Tool::kGptq, quantized.path(), plain.path());
  for (const char* file : {"config.json", "model.safetensors"}) {
    fs::copy_file(quantized.path() / file, model.file(file), fs::copy_options::overwrite_existing);
  }
  const Answer want = answer_of(from_checkpoint(model));
  set_tied(model, true);
  EXPECT_EQ(answer_of(from_checkpoint(model)), want);
}

/// The tensors of the folder, with a head of those bytes.
void add_head(const PackedModel& model, const std::vector<int64_t>& shape,
              const std::string& bytes) {
  std::vector<TensorToWrite> tensors;
  {
    const Checkpoint checkpoint(fs::path(model.options().path));
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      if (tensor.name == "lm_head.weight") continue;
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                         std::string(static_cast<const char*>(tensor.data), tensor.bytes)});
    }
  }
  tensors.push_back({"lm_head.weight", tensors.front().dtype, shape, bytes});
  model.write("model.safetensors", safetensors_file(tensors));
}

class CopiedHead : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(CopiedHead, StaysTied) {
  const auto& [name, embedding_name] = GetParam();
  const PackedModel model(name);
  const ModelOptions options = from_checkpoint(model);
  const Answer want = answer_of(options);
  std::vector<int64_t> shape;
  std::string bytes;
  {
    const Checkpoint checkpoint(fs::path(options.path));
    const CheckpointTensor* embedding = checkpoint.find(embedding_name);
    ASSERT_NE(embedding, nullptr);
    shape = embedding->shape;
    bytes.assign(static_cast<const char*>(embedding->data), embedding->bytes);
  }
  const ModelConfig config = load_model_config(options.path);
  if (config.layout == CheckpointLayout::kPaddle) {
    const size_t rows = size_t(shape[0]), cols = size_t(shape[1]);
    const size_t element = bytes.size() / (rows * cols);
    std::string turned;
    for (size_t c = 0; c < cols; ++c) {
      for (size_t r = 0; r < rows; ++r) turned += bytes.substr((r * cols + c) * element, element);
    }
    bytes = turned;
    shape = {shape[1], shape[0]};
  }
  add_head(model, shape, bytes);
  EXPECT_FALSE(holds_other_head(config, Checkpoint(fs::path(options.path))));
  EXPECT_EQ(answer_of(options), want);

  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  add_head(model, shape, bytes);
  EXPECT_TRUE(holds_other_head(config, Checkpoint(fs::path(options.path))));
}

INSTANTIATE_TEST_SUITE_P(Goldens, CopiedHead,
                         testing::Values(std::pair{"llama_tied_mqa", "model.embed_tokens.weight"},
                                         std::pair{"ernie4_5_paddle",
                                                   "ernie.embed_tokens.weight"}));

}  // namespace
}  // namespace headrace
