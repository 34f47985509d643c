// The second family that docs/developing.md adds: layers with a state compute what the formula
// says.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

constexpr int64_t kKernel = 3;

Json config_of(const GoldenCase& llama, int32_t layers) {
  Json out =
      Json::parse(read_small_file(std::filesystem::path(llama.folder) / "config.json", 1 << 20));
  out["model_type"] = "tarn";
  out.erase("architectures");
  out["num_hidden_layers"] = layers;
  out["group"] = 2;
  return out;
}

/// A golden Llama checkpoint with mixers of the example's in its first layer: they add nothing,
/// where `out` is 0.
void write_tarn(const GoldenCase& llama, float out, const TempFolder& folder) {
  const Json config = config_of(llama, 2);
  const auto hidden = config["hidden_size"].get<int64_t>();
  std::vector<TensorToWrite> tensors;
  const Checkpoint checkpoint(llama.folder);
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.name.starts_with("model.layers.0.self_attn.")) continue;
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                       std::string(static_cast<const char*>(tensor.data), tensor.bytes)});
  }
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape, float scale) {
    std::vector<float> numbers(static_cast<size_t>(shape.front() * shape.back()));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = scale * (static_cast<float>((i * 37) % 101) / 50.0f - 1.0f);
    }
    tensors.push_back(
        {"model.layers.0.mix." + name, DType::kF32, shape, encode(numbers, DType::kF32)});
  };
  for (const char* name : {"open.weight", "close.weight", "x.weight"})
    add(name, {hidden, hidden}, 0.3f);
  add("taps", {hidden, 1, kKernel}, 1.0f);
  add("out.weight", {hidden, hidden}, out);
  folder.write("model.safetensors", safetensors_file(tensors));
  folder.write("config.json", config.dump());
}

using Rows = std::vector<std::vector<float>>;

Rows answers(DecoderHarness& harness, const std::vector<int32_t>& prompt, size_t chunk) {
  Rows out;
  harness.start(0, static_cast<int32_t>(prompt.size()));
  for (size_t at = 0; at < prompt.size(); at += chunk) {
    const size_t end = std::min(at + chunk, prompt.size());
    const Rows rows =
        harness.step({{.sequence = 0, .tokens = {prompt.begin() + at, prompt.begin() + end}}});
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

TEST(ExampleFamilyWithStates, ChunksDontChangeAnswersAndStatesMatter) {
  const GoldenCase llama = load_golden_case("llama");
  const std::vector<int32_t> prompt = llama.prompts[1].prompt;
  const TempFolder with, without;
  write_tarn(llama, 0.3f, with);
  write_tarn(llama, 0.0f, without);
  DecoderHarness harness("", with.path().string(), {});
  const Rows whole = answers(harness, prompt, prompt.size());
  EXPECT_EQ(answers(harness, prompt, 1), whole);
  EXPECT_EQ(answers(harness, prompt, 4), whole);
  DecoderHarness silent("", without.path().string(), {});
  EXPECT_NE(answers(silent, prompt, 4), whole);
}

TEST(ExampleFamilyWithStates, ReadsItsOwnKeysAndRefusesOthers) {
  Json config = config_of(load_golden_case("llama"), 4);
  EXPECT_EQ(parse_model_config(config.dump(), "").state.layers,
            (std::vector<bool>{true, false, true, false}));
  config["conv_rows"] = 100;
  expect_error(ErrorCode::kUnsupported, {"conv_rows"},
               [&] { parse_model_config(config.dump(), ""); });
}

}  // namespace
}  // namespace headrace
