// Several CPU ranks and checkpoints quantized in an order of inputs of their own (act-order).

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/host/weight_source.h"
#include "base/mapped_file.h"
#include "cpp/engine/ranks/rank_runs.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

/// What tools quantize in an order of inputs of its own, of a golden model.
class ActOrder {
 public:
  explicit ActOrder(const std::string& name) : golden_(load_golden_case(name)) {
    write_quantized(golden_.folder, Tool::kGptqActOrder, quantized_.path(), plain_.path());
  }

  ModelOptions options(int32_t ranks) const {
    return options_for(quantized_.path().string(), ranks);
  }
  const GoldenCase& golden() const { return golden_; }

 private:
  const GoldenCase golden_;
  const TempFolder quantized_, plain_;
};

// No sum is divided: what one device gives, bit for bit.
TEST(EngineRanksOrders, OrdersOfInputsGiveTheBitsOfOneDevice) {
  for (const auto& [name, counts] : {std::pair<const char*, std::vector<int32_t>>{"llama", {2, 4}},
                                     {"llama_tied_mqa", {4}},
                                     {"ernie4_5_bias", {2}},
                                     {"qwen3_window", {2}}}) {
    SCOPED_TRACE(name);
    const ActOrder model(name);
    const auto prompts = prompts_of(model.golden());
    const auto one = run(*start(model.options(1)), prompts, 12, true);
    for (const int32_t ranks : counts) {
      SCOPED_TRACE(ranks);
      expect_same(run(*start(model.options(ranks)), prompts, 12, true), one);
    }
    ModelOptions options = model.options(counts.front());
    options.max_num_batched_tokens = 16;
    options.num_threads = 3 * counts.front();
    expect_same(run(*start(options), prompts, 12), one);
  }
}

/// A golden model with experts of `width` inner features, made of its own.
void widen_experts(const GoldenCase& golden, int64_t width, const TempFolder& to) {
  const Checkpoint checkpoint(golden.folder);
  std::vector<TensorToWrite> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::vector<float> values(tensor.bytes / dtype_size(tensor.dtype));
    read_elements(tensor.data, tensor.dtype, 1, static_cast<int64_t>(values.size()), values.data());
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.name.find(".experts.") != std::string::npos) {
      const size_t side = tensor.name.find("down_proj") == std::string::npos ? 0 : 1;
      const std::vector<float> narrow = std::exchange(values, {});
      shape[side] = width;
      for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
        const int64_t row = i / shape[1] % tensor.shape[0], col = i % shape[1] % tensor.shape[1];
        values.push_back(narrow[size_t(row * tensor.shape[1] + col)] *
                         (1.0f - 0.01f * static_cast<float>((i * 7) % 11)));
      }
    }
    tensors.push_back({tensor.name, DType::kF32, shape, encode(values, DType::kF32)});
  }
  Json config = Json::parse(read_small_file(golden.folder / "config.json", 1 << 20));
  config["moe_intermediate_size"] = width;
  std::ofstream(to.path() / "config.json") << config.dump();
  std::ofstream(to.path() / "model.safetensors", std::ios::binary) << safetensors_file(tensors);
}

struct ExpertRun {
  const char* name;
  int32_t ranks;
  int64_t width;
  bool whole_experts;
};

// By their inner features, in down's order, or whole; beside experts that all rows share.
TEST(EngineRanksOrders, ExpertsWithOrdersOfInputsAnswerAsOneDevice) {
  for (const ExpertRun& each : {ExpertRun{"qwen3_moe", 2, 64, false},
                                {"qwen2_moe", 3, 96, false},
                                {"qwen3_moe", 4, 64, true},
                                {"ernie4_5_moe", 3, 40, true}}) {
    SCOPED_TRACE(::testing::Message() << each.name << " " << each.ranks);
    const TempFolder wide, quantized, plain;
    const GoldenCase golden = load_golden_case(each.name);
    widen_experts(golden, each.width, wide);
    write_quantized(wide.path(), Tool::kGptqActOrder, quantized.path(), plain.path());
    const auto prompts = prompts_of(golden);
    const std::string path = quantized.path().string();
    const auto one = run(*start(options_for(path, 1)), prompts, 8, true);
    ModelOptions options = options_for(path, each.ranks);
    options.enable_expert_parallel = each.whole_experts;
    const auto several = run(*start(options), prompts, 8, true);
    EXPECT_LE(distance(several, one), 0.05);
    expect_same(run(*start(options), prompts, 8), several);
  }
}

TEST(EngineRanksOrders, AdaptersOverOrdersOfInputsGiveTheBitsOfOneDevice) {
  const ActOrder model("qwen3_window");
  AdapterToWrite adapter;
  adapter.rank = 4;
  const TempFolder folder;
  write_adapter(folder, load_model_config(model.golden().folder), adapter);
  std::vector<std::vector<Output>> answers;
  for (const int32_t ranks : {1, 2, 4}) {
    ModelOptions options = model.options(ranks);
    options.max_loras = 1;
    options.max_lora_rank = 4;
    const auto engine = start(options);
    engine->load_lora("m", "a", folder.path().string());
    answers.push_back(run(*engine, prompts_of(model.golden()), 12, true, "a"));
    expect_same(answers.back(), answers.front());
    const auto plain = run(*engine, prompts_of(model.golden()), 12, true);
    EXPECT_NE(plain[0].logprobs[0].logprob, answers.back()[0].logprobs[0].logprob);
  }
}

// Each has some of the features of what has all inputs.
TEST(EngineRanksOrders, OrdersOfInputsAreSharedToo) {
  const ActOrder model("qwen3_window");
  Watched one, two;
  one.load(model.options(1), {0});
  two.load(model.options(2), {0, 0});
  const auto whole = static_cast<double>(one.model->info.weight_bytes);
  EXPECT_NEAR(static_cast<double>(two.model->info.weight_bytes), whole, 0.15 * whole);
}

}  // namespace
}  // namespace headrace
