// Adapters in a step: the numbers of merged weights, and the same bits whatever else is in the
// step.

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "cpp/model/test_json.h"
#include "model/load/load_config.h"
#include "model/lora/lora_adapter.h"

namespace headrace {
namespace {

using Rows = std::vector<std::vector<float>>;

constexpr int32_t kMaxRank = 17;

/// Three adapters that differ in rank, scale, modules and dtype.
std::vector<AdapterToWrite> three_adapters() {
  AdapterToWrite all, attention, rest;
  all.rank = 8;
  attention.modules = {"self_attn.q_proj", "self_attn.v_proj"};
  attention.rank = 3;
  attention.alpha = 12.0;
  attention.seed = 2;
  attention.infix = ".default";
  rest.modules = {"self_attn.k_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"};
  rest.rank = kMaxRank;
  rest.alpha = 5.0;
  rest.rslora = true;
  rest.seed = 3;
  return {all, attention, rest};
}

/// Of a model with states, and experts perhaps, which no adapter changes.
std::vector<AdapterToWrite> adapters_for(const ModelConfig& config) {
  std::vector<AdapterToWrite> out = three_adapters();
  if (config.model_type == "nemotron_h") {
    out[0].modules = {"mixer.in_proj", "mixer.q_proj", "mixer.up_proj", "mixer.fc2_latent_proj"};
    out[1].modules = {"mixer.out_proj", "mixer.fc1_latent_proj"};
    out[2].modules = {"mixer.down_proj", "mixer.o_proj", "mixer.shared_experts.up_proj"};
    return out;
  }
  if (config.model_type == "falcon_h1") {
    out[0].modules = {"mamba.in_proj", "self_attn.k_proj", "feed_forward.gate_proj"};
    out[1].modules = {"mamba.out_proj"};
    out[2].modules = {"self_attn.o_proj", "feed_forward.down_proj", "mamba.in_proj"};
    return out;
  }
  if (config.latent.rank > 0) {  // with queries that have a row of their own, or not
    out[0].modules = {"self_attn.q_proj", "self_attn.q_b_proj", "self_attn.o_proj"};
    out[1].modules = {"self_attn.kv_a_proj_with_mqa"};
    out[2].modules = {"self_attn.o_proj", "self_attn.q_a_proj", "mlp.shared_experts.up_proj"};
    return out;
  }
  if (config.state.layers.empty()) return out;
  const bool grouped = config.model_type == "qwen3_next";
  const std::vector<std::string> in =
      grouped ? std::vector<std::string>{"linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba"}
              : std::vector<std::string>{"linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
                                         "linear_attn.in_proj_b", "linear_attn.in_proj_a"};
  out[0].modules = {"self_attn.q_proj", "self_attn.v_proj", "linear_attn.out_proj"};
  out[0].modules.insert(out[0].modules.end(), in.begin(), in.end());
  out[1].modules = {in.front(), "self_attn.k_proj"};
  out[2].modules = {in.back(), "self_attn.q_proj", "linear_attn.out_proj"};
  return out;
}

HarnessOptions with_loras(DType storage = DType::kF32) {
  HarnessOptions options;
  options.storage = options.kv_dtype = storage;
  options.max_loras = 3;
  options.max_lora_rank = kMaxRank;
  return options;
}

struct Setup {
  std::string isa, name;
};

std::vector<Setup> setups(std::initializer_list<const char*> names) {
  std::vector<Setup> out;
  for (const std::string& isa : isas_under_test()) {
    for (const char* name : names) out.push_back({isa, name});
  }
  return out;
}

std::string name_of(const testing::TestParamInfo<Setup>& test) {
  return test.param.isa + "_" + test.param.name;
}

class LoraMerged : public testing::TestWithParam<Setup> {};

// Merged or not, a run is a float32 evaluation of the same function, and one such differs from
// another by at most the case's tolerance (tests/golden/README.md); it is doubled because that was
// measured without the adapter's sums and roundings of merged weights.
TEST_P(LoraMerged, AMixedBatchGivesTheLogitsOfMergedWeights) {
  const GoldenCase golden = load_golden_case(GetParam().name);
  const double tolerance = 2.0 * golden.logit_tolerance;
  const std::vector<int32_t> prompt = golden.prompts.front().prompt;
  const auto length = static_cast<int32_t>(prompt.size());
  DecoderHarness mixed(GetParam().isa, golden.folder, with_loras());
  DecoderHarness plain(GetParam().isa, golden.folder, {});

  std::vector<std::unique_ptr<TempFolder>> folders;
  std::vector<std::unique_ptr<DecoderHarness>> merged;
  std::vector<std::shared_ptr<const LoraAdapter>> adapters;
  for (const AdapterToWrite& adapter : adapters_for(mixed.config())) {
    folders.push_back(std::make_unique<TempFolder>());
    folders.push_back(std::make_unique<TempFolder>());
    const TempFolder& own = *folders[folders.size() - 2];
    write_merged(golden.folder, write_adapter(own, mixed.config(), adapter), *folders.back());
    adapters.push_back(mixed.load_lora(own.path()));
    merged.push_back(
        std::make_unique<DecoderHarness>(GetParam().isa, folders.back()->path(), HarnessOptions{}));
  }
  const auto lora_of = [&](int32_t i) { return i < 3 ? adapters[size_t(i)].get() : nullptr; };
  const auto harness_of = [&](int32_t i) -> DecoderHarness& {
    return i < 3 ? *merged[size_t(i)] : plain;
  };

  for (int32_t i = 0; i < 4; ++i) mixed.start(i, length), harness_of(i).start(0, length);
  std::vector<std::vector<int32_t>> next(4, prompt);
  double least_effect = 1e9;
  for (int step = 0; step < 10; ++step) {
    std::vector<Chunk> chunks;
    for (int32_t i = 0; i < 4; ++i) chunks.push_back({i, next[size_t(i)], lora_of(i)});
    const Rows got = mixed.step(chunks);
    size_t row = 0;
    for (int32_t i = 0; i < 4; ++i) {
      const Rows want = harness_of(i).step({{0, next[size_t(i)]}});
      for (const std::vector<float>& logits : want) {
        if (i == 3) {
          ASSERT_EQ(got[row], logits) << "without adapter, step " << step;
        }
        for (size_t v = 0; v < logits.size(); ++v) {
          ASSERT_NEAR(got[row][v], logits[v], tolerance) << "sequence " << i << ", step " << step;
        }
        ++row;
      }
      if (step == 0 && i < 3) {
        double effect = 0.0;
        plain.start(1, length);
        const std::vector<float> base = plain.step({{1, prompt}}).back();
        for (size_t v = 0; v < base.size(); ++v) {
          effect = std::max<double>(effect, std::abs(base[v] - want.back()[v]));
        }
        least_effect = std::min(least_effect, effect);
      }
      ASSERT_EQ(argmax(got[row - 1]), argmax(want.back())) << "sequence " << i;
      next[size_t(i)] = {argmax(want.back())};
    }
  }
  EXPECT_GT(least_effect, 20.0 * tolerance) << "adapters too weak to show a fault";
}

INSTANTIATE_TEST_SUITE_P(
    Setups, LoraMerged,
    testing::ValuesIn(setups({"llama",          "llama_bf16",     "llama_bias_hd256",
                              "llama_dynamic",  "llama_tied_mqa", "mistral_window",
                              "qwen2",          "qwen3",          "ernie4_5",
                              "ernie4_5_bias",  "qwen3_5",        "qwen3_next",
                              "nemotron_h_moe", "falcon_h1",      "gemma3_text",
                              "gemma4_text",    "glm4",           "glm4_moe",
                              "gpt_oss",        "deepseek_v2",    "glm4_moe_lite"})),
    name_of);

/// What PEFT answers with adapters that it saved: tests/golden/make_lora.py.
class LoraPeft : public testing::TestWithParam<std::string> {};

TEST_P(LoraPeft, GivesItsTokensAndLogProbabilities) {
  const std::filesystem::path golden = HEADRACE_GOLDEN_DIR;
  const Json all = Json::parse(read_small_file(golden / "lora/expected.json", 1 << 20));
  ASSERT_EQ(all.size(), 2u);
  for (const auto& [name, expected] : all.items()) {
    SCOPED_TRACE(name);
    const std::string base = expected.at("case");
    const double tolerance = 2.0 * load_golden_case(base).logprob_tolerance;
    DecoderHarness harness(GetParam(), golden / base, with_loras());
    const auto adapter = harness.load_lora(golden / "lora" / name);
    auto next = expected.at("prompt").get<std::vector<int32_t>>();
    harness.start(0, static_cast<int32_t>(next.size()));
    const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<float> logits = harness.step({{0, next, adapter.get()}}).back();
      ASSERT_EQ(argmax(logits), tokens[i]) << i;
      double sum = 0.0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const double logprob = static_cast<double>(logits[size_t(tokens[i])]) - std::log(sum);
      EXPECT_NEAR(logprob, expected.at("logprobs").at(i).get<double>(), tolerance) << i;
      next = {tokens[i]};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LoraPeft, testing::ValuesIn(isas_under_test()));

class LoraBits : public testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    golden_ = load_golden_case(GetParam().name);
    const DType storage = golden_.storage == "bfloat16"  ? DType::kBF16
                          : golden_.storage == "float16" ? DType::kF16
                                                         : DType::kF32;
    options_ = with_loras(storage);
    for (const AdapterToWrite& adapter : three_adapters()) {
      folders_.push_back(std::make_unique<TempFolder>());
      write_adapter(*folders_.back(), load_model_config(golden_.folder), adapter);
    }
  }

  /// A harness and the three adapters in it.
  struct Loaded {
    DecoderHarness harness;
    std::vector<std::shared_ptr<const LoraAdapter>> adapters;
  };
  Loaded load(const HarnessOptions& options) const {
    Loaded out{DecoderHarness(GetParam().isa, golden_.folder, options), {}};
    for (const auto& folder : folders_)
      out.adapters.push_back(out.harness.load_lora(folder->path()));
    return out;
  }

  /// The prompt with one adapter, in chunks of `size`, beside the chunks of other sequences.
  Rows feed(Loaded& loaded, size_t adapter, size_t size, bool company) const {
    const std::vector<int32_t>& ids = golden_.prompts.back().prompt;
    const auto length = static_cast<int32_t>(ids.size());
    for (int32_t i = 0; i < 4; ++i) loaded.harness.start(i, length);
    Rows out;
    for (size_t at = 0; at < ids.size(); at += size) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last = ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), at + size));
      std::vector<Chunk> chunks;
      if (company) {
        chunks.push_back({1, {first, last}, loaded.adapters[(adapter + 1) % 3].get()});
        chunks.push_back({2, {first, last}, nullptr});
      }
      chunks.push_back({0, {first, last}, loaded.adapters[adapter].get()});
      if (company) chunks.push_back({3, {*first}, loaded.adapters[adapter].get()});
      const Rows rows = loaded.harness.step(chunks);
      const auto begin = rows.begin() + (company ? 2 : 0) * (last - first);
      out.insert(out.end(), begin, begin + (last - first));
    }
    return out;
  }

  GoldenCase golden_;
  HarnessOptions options_;
  std::vector<std::unique_ptr<TempFolder>> folders_;
};

TEST_P(LoraBits, WhateverTheChunksTheCompanyAndTheThreads) {
  Loaded one = load(options_);
  HarnessOptions other = options_;
  other.block_size = 64;
  other.num_threads = 3;
  Loaded two = load(other);
  const size_t whole = golden_.prompts.back().prompt.size();
  for (const size_t adapter : {0u, 1u, 2u}) {
    const Rows want = feed(one, adapter, whole, false);
    EXPECT_EQ(feed(one, adapter, 1, false), want) << "token by token";
    EXPECT_EQ(feed(one, adapter, 37, true), want) << "in company";
    EXPECT_EQ(feed(two, adapter, 50, true), want) << "with other threads and blocks";
  }
}

TEST_P(LoraBits, WhicheverRowsWantLogits) {
  Loaded one = load(options_);
  const std::vector<int32_t> ids = golden_.prompts.back().prompt;
  const Rows all = feed(one, 0, ids.size(), false);
  one.harness.start(1, static_cast<int32_t>(ids.size()));
  EXPECT_EQ(one.harness.step({1, ids, one.adapters[0].get()}, {0, 5}), (Rows{all[0], all[5]}));
  EXPECT_EQ(one.harness.more({6, 100}), (Rows{all[6], all[100]}));
}

TEST_P(LoraBits, StepsAllocateNothingAndUnloadingGivesTheMemoryBack) {
  Loaded one = load(options_);
  feed(one, 0, 60, true);  // the backend's own scratch grows to its size
  const size_t before = one.harness.backend().bytes_in_use();
  feed(one, 1, 60, true);
  EXPECT_EQ(one.harness.backend().bytes_in_use(), before);
  size_t bytes = 0;
  for (const auto& adapter : one.adapters) bytes += adapter->bytes();
  EXPECT_GT(bytes, 0u);
  one.adapters.clear();
  EXPECT_LE(one.harness.backend().bytes_in_use(), before - bytes);
}

INSTANTIATE_TEST_SUITE_P(Setups, LoraBits,
                         testing::ValuesIn(setups({"llama_yarn", "llama_f16", "qwen3_window",
                                                   "ernie4_5_bias"})),
                         name_of);

// Adapters trained on either layout of a checkpoint fit the other.
class LoraPaddle : public testing::TestWithParam<std::string> {};

TEST_P(LoraPaddle, BothLayoutsAndBothNamingsGiveTheSameBits) {
  const GoldenCase twin = load_golden_case("ernie4_5_bias_paddle");
  const GoldenCase torch = load_golden_case(twin.twin_of);
  const std::vector<int32_t> prompt = twin.prompts.front().prompt;
  DecoderHarness a(GetParam(), torch.folder, with_loras());
  DecoderHarness b(GetParam(), twin.folder, with_loras());
  AdapterToWrite fused;
  fused.modules = {"self_attn.qkv_proj", "mlp.up_gate_proj", "mlp.down_proj"};
  const TempFolder fused_folder, split_folder;
  const auto modules = write_adapter(fused_folder, a.config(), fused);

  // The same numbers under the names of the parts.
  const int64_t q = int64_t{a.config().num_heads} * a.config().head_dim;
  const int64_t kv = int64_t{a.config().num_kv_heads} * a.config().head_dim;
  const int64_t wide = a.config().intermediate_size;
  std::vector<WrittenModule> split;
  for (const WrittenModule& whole : modules) {
    std::vector<std::pair<std::string, int64_t>> parts = {{"mlp.down_proj", whole.n}};
    if (whole.path.ends_with("qkv_proj")) {
      parts = {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}};
    }
    if (whole.path.ends_with("up_gate_proj")) {
      parts = {{"mlp.gate_proj", wide}, {"mlp.up_proj", wide}};
    }
    auto row = whole.b.begin();
    for (const auto& [name, n] : parts) {
      const std::string layer = whole.path.substr(0, whole.path.find('.', 13));
      split.push_back({str_cat(layer, ".", name),
                       n,
                       whole.k,
                       whole.rank,
                       whole.scale,
                       whole.a,
                       {row, row + n * whole.rank}});
      row += n * whole.rank;
    }
  }
  split_folder.write("adapter_config.json", adapter_config({}));
  split_folder.write("adapter_model.safetensors",
                     safetensors_file(adapter_tensors(split, DType::kF32)));

  Rows want;
  for (DecoderHarness* harness : {&a, &b}) {
    for (const TempFolder* folder : {&fused_folder, &split_folder}) {
      const auto adapter = harness->load_lora(folder->path());
      harness->start(0, static_cast<int32_t>(prompt.size()));
      const Rows rows = harness->step({{0, prompt, adapter.get()}});
      if (want.empty()) want = rows;
      EXPECT_EQ(rows, want);
    }
  }
  b.start(0, static_cast<int32_t>(prompt.size()));
  EXPECT_NE(b.step({{0, prompt}}), want);
}

INSTANTIATE_TEST_SUITE_P(Isas, LoraPaddle, testing::ValuesIn(isas_under_test()));

}  // namespace
}  // namespace headrace
