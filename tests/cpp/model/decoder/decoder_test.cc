// What a Decoder promises besides right numbers: the same bits however a request is cut up, both
// layouts, honest errors and honest sizes.

#include "model/decoder/decoder.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/sources/model_sources.h"

namespace headrace {
namespace {

using Rows = std::vector<std::vector<float>>;

struct Setup {
  std::string isa, name;
  DType storage;
};

/// Cases that between them have biases, q/k norms, windows, dynamic rope and both rope styles.
std::vector<Setup> setups() {
  std::vector<Setup> out;
  for (const std::string& isa : isas_under_test()) {
    for (const char* name :
         {"llama_bias_hd256", "llama_dynamic", "mistral_window", "qwen3_window", "ernie4_5_bias"}) {
      out.push_back({isa, name, DType::kF32});
    }
    out.push_back({isa, "llama_yarn", DType::kBF16});
    out.push_back({isa, "llama_f16", DType::kF16});
  }
  return out;
}

class SameBits : public testing::TestWithParam<Setup> {
 protected:
  DecoderHarness harness(HarnessOptions options = {}) const {
    options.storage = options.kv_dtype = GetParam().storage;
    return DecoderHarness(GetParam().isa, golden().folder, options);
  }
  GoldenCase golden() const { return load_golden_case(GetParam().name); }
  std::vector<int32_t> prompt() const { return golden().prompts.back().prompt; }
};

/// The prompt in chunks of these sizes, repeated until it is through.
Rows feed(DecoderHarness& harness, int32_t sequence, const std::vector<int32_t>& prompt,
          const std::vector<size_t>& sizes) {
  harness.start(sequence, static_cast<int32_t>(prompt.size()));
  Rows rows;
  for (size_t at = 0, i = 0; at < prompt.size(); ++i) {
    const size_t end = std::min(prompt.size(), at + sizes[i % sizes.size()]);
    Rows part = harness.step({{sequence,
                               {prompt.begin() + static_cast<std::ptrdiff_t>(at),
                                prompt.begin() + static_cast<std::ptrdiff_t>(end)}}});
    rows.insert(rows.end(), part.begin(), part.end());
    at = end;
  }
  return rows;
}

TEST_P(SameBits, WhateverTheChunks) {
  DecoderHarness one = harness();
  const Rows whole = feed(one, 0, prompt(), {prompt().size()});
  EXPECT_EQ(feed(one, 1, prompt(), {1}), whole) << "token by token";
  EXPECT_EQ(feed(one, 2, prompt(), {7, 64, 1, 16}), whole);
  EXPECT_EQ(feed(one, 0, prompt(), {33}), whole) << "into blocks that were used before";
}

TEST_P(SameBits, WhateverTheBlockSizeAndThreads) {
  DecoderHarness small = harness({.block_size = 16, .num_threads = 1});
  DecoderHarness large = harness({.block_size = 128, .num_threads = 2});
  EXPECT_EQ(feed(small, 0, prompt(), {50}), feed(large, 3, prompt(), {131}));
}

TEST_P(SameBits, WhateverElseIsInTheStep) {
  DecoderHarness one = harness();
  const std::vector<int32_t> a = prompt(), b = golden().prompts[2].prompt;
  const Rows alone = feed(one, 0, a, {a.size()});
  // b is one step ahead, then decodes beside the chunks of a.
  one.start(1, static_cast<int32_t>(b.size()));
  one.start(2, static_cast<int32_t>(a.size()));
  one.step({{1, b}});
  Rows mixed;
  for (size_t at = 0; at < a.size(); at += 20) {
    const size_t end = std::min(a.size(), at + 20);
    const Chunk decode{1, {b[at % b.size()]}};
    const Chunk chunk{2,
                      {a.begin() + static_cast<std::ptrdiff_t>(at),
                       a.begin() + static_cast<std::ptrdiff_t>(end)}};
    const Rows rows = one.step({decode, chunk});
    mixed.insert(mixed.end(), rows.begin() + 1, rows.end());
  }
  EXPECT_EQ(mixed, alone);
}

TEST_P(SameBits, WhicheverRowsWantLogits) {
  DecoderHarness one = harness();
  const std::vector<int32_t> ids = prompt();
  const auto length = static_cast<int32_t>(ids.size());
  const Rows all = feed(one, 0, ids, {ids.size()});
  one.start(1, length);
  EXPECT_EQ(one.step({1, ids}, {0, 77, length - 1}), (Rows{all[0], all[77], all.back()}));
  // A step without logits still fills the cache.
  one.start(2, length);
  EXPECT_TRUE(one.step({2, {ids.begin(), ids.end() - 1}}, {}).empty());
  EXPECT_EQ(one.step({{2, {ids.back()}}}), Rows{all.back()});
}

TEST_P(SameBits, ReadInSeveralCalls) {
  DecoderHarness one = harness();
  const std::vector<int32_t> ids = prompt();
  const Rows all = feed(one, 0, ids, {ids.size()});
  one.start(1, static_cast<int32_t>(ids.size()));
  EXPECT_EQ(one.step({1, ids}, {0, 5}), (Rows{all[0], all[5]}));
  EXPECT_EQ(one.more({6, 7, 100}), (Rows{all[6], all[7], all[100]}));
  EXPECT_EQ(one.more({5}), Rows{all[5]});
  // The next step starts from the cache alone.
  EXPECT_EQ(one.step({{1, {ids.back()}}}).size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Setups, SameBits, testing::ValuesIn(setups()),
                         [](const auto& test) { return test.param.isa + "_" + test.param.name; });

class PaddleTwin : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(PaddleTwin, HasTheSameBits) {
  const auto& [isa, name] = GetParam();
  const GoldenCase twin = load_golden_case(name);
  const GoldenCase torch = load_golden_case(twin.twin_of);
  const std::vector<int32_t> prompt = twin.prompts.back().prompt;
  for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
    DecoderHarness a(isa, torch.folder, {.storage = storage});
    DecoderHarness b(isa, twin.folder, {.storage = storage});
    EXPECT_EQ(a.step({{0, prompt}}), b.step({{0, prompt}})) << dtype_name(storage);
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, PaddleTwin,
                         testing::Combine(testing::ValuesIn(isas_under_test()),
                                          testing::Values("ernie4_5_paddle",
                                                          "ernie4_5_bias_paddle")));

/// A tiny model and its well-formed checkpoint, which tests damage.
class DecoderLoad : public testing::Test {
 protected:
  static ModelConfig tiny(const std::string& model_type, const std::string& more = "") {
    return parse_model_config(R"({"model_type":")" + model_type +
                                  R"(","vocab_size":48,"hidden_size":32,"intermediate_size":48,
                                  "num_hidden_layers":2,"num_attention_heads":2,
                                  "num_key_value_heads":1,"head_dim":16)" +
                                  more + "}",
                              "");
  }

  /// What the family must be told, or is too large without.
  static std::string more_keys(const std::string& model_type) {
    const std::string chosen = R"(,"num_experts_per_tok":2,"moe_intermediate_size":16)";
    const std::string experts = R"(,"num_experts":4)" + chosen;
    if (model_type == "gemma3_text") return R"(,"sliding_window":8)";
    if (model_type == "glm4_moe") return R"(,"n_routed_experts":4)" + chosen;
    if (model_type == "granitemoehybrid") {
      return R"(,"layer_types":["mamba","attention"],"mamba_n_heads":8,"mamba_d_state":16,
                "num_local_experts":4)";
    }
    if (model_type == "nemotron_h") {
      return R"(,"hybrid_override_pattern":"E*","moe_intermediate_size":16,
                "moe_shared_expert_intermediate_size":24,"n_groups":2)";
    }
    if (model_type == "falcon_h1") {
      return R"(,"mamba_d_ssm":32,"mamba_n_heads":4,"mamba_d_state":16)";
    }
    const std::string conv = R"(,"layer_types":["conv","full_attention"])";
    if (model_type == "lfm2") return conv;
    if (model_type == "lfm2_moe") return conv + R"(,"num_dense_layers":1)" + experts;
    if (!model_type.starts_with("qwen3_5") && model_type != "qwen3_next") return "";
    return R"(,"full_attention_interval":2,"rope_theta":1e6,"linear_num_key_heads":2,
              "linear_num_value_heads":4,"linear_key_head_dim":8,"linear_value_head_dim":8)" +
           (model_type == "qwen3_5_text" ? "" : experts);
  }

  static std::vector<TensorToWrite> tensors_of(const ModelConfig& config) {
    return tensors_of(config, likely_naming(config));
  }

  static std::vector<TensorToWrite> tensors_of(const ModelConfig& config,
                                               const TensorNaming& naming) {
    std::vector<TensorToWrite> out;
    std::set<std::string> names;
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
      if (!names.insert(name).second) return;  // several parts of one tensor
      int64_t count = 1;
      for (const int64_t dim : shape) count *= dim;
      std::mt19937 random(static_cast<uint32_t>(out.size()));
      std::uniform_real_distribution<float> draw(-0.3f, 0.3f);
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = draw(random);
      out.push_back({name, DType::kF32, shape, encode(values, DType::kF32)});
    };
    const ModelSources sources = list_sources(config, naming);
    for (const MatrixSource* source : sources.matrices()) {
      for (const StoredPart& part : source->parts) {
        add(part.name, !part.shape.empty()  ? part.shape
                       : source->transposed ? std::vector<int64_t>{source->k, part.n}
                                            : std::vector<int64_t>{part.n, source->k});
      }
    }
    for (const VectorSource* source : sources.vectors()) {
      for (const StoredPart& part : source->parts) {
        add(part.name, part.shape.empty() ? std::vector<int64_t>{part.n} : part.shape);
      }
    }
    return out;
  }

  static TensorToWrite& tensor(std::vector<TensorToWrite>& tensors, const std::string& name) {
    for (TensorToWrite& candidate : tensors) {
      if (candidate.name == name) return candidate;
    }
    throw std::logic_error("no tensor " + name);
  }

  static void erase(std::vector<TensorToWrite>& tensors, const std::string& name) {
    std::erase_if(tensors, [&](const TensorToWrite& tensor) { return tensor.name == name; });
  }

  void load(const ModelConfig& config, const std::vector<TensorToWrite>& tensors) {
    folder_.write("model.safetensors", safetensors_file(tensors));
    const Checkpoint checkpoint(folder_.path());
    const DecoderOptions options{.max_rows = 8, .max_logit_rows = 8};
    parameters_ = make_decoder(*backend_, config, &checkpoint, options)->num_parameters();
  }

  void expect_refused(ErrorCode code, std::initializer_list<std::string> parts,
                      const ModelConfig& config, const std::vector<TensorToWrite>& tensors) {
    expect_error(code, parts, [&] { load(config, tensors); });
    EXPECT_EQ(backend_->bytes_in_use(), 0u);
  }

  TempFolder folder_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend({.num_threads = 1, .isa = "reference"});
  int64_t parameters_ = 0;
};

TEST_F(DecoderLoad, WellFormedOnesLoad) {
  // Those have towers besides: vision/tower_test.cc loads them. The last two are configs around a
  // text model's: tests/python/e2e/test_e2e_wrappers.py and golden cases.
  const std::set<std::string> others = {
      "qwen2_vl", "qwen2_5_vl",      "qwen3_vl",        "smolvlm", "qwen3_vl_moe",
      "idefics3", "ernie4_5_moe_vl", "ernie4_5_vl_moe", "qwen3_5", "qwen3_5_moe",
      "gemma3",   "gemma4",          "mistral3"};
  // Their heads all share rows, so that tiny() has another number than it should.
  const std::set<std::string> latent = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite"};
  for (const std::string& type : supported_model_types()) {
    if (others.contains(type) || latent.contains(type)) continue;
    const ModelConfig config = tiny(type, more_keys(type));
    EXPECT_NO_THROW(load(config, tensors_of(config))) << type;
    EXPECT_EQ(backend_->bytes_in_use(), 0u);
  }
  const ModelConfig ernie = tiny("ernie4_5", R"(,"tie_word_embeddings":false,"use_bias":true)");
  EXPECT_NO_THROW(load(ernie, tensors_of(ernie, {CheckpointLayout::kPaddle, "ernie."})));
}

TEST_F(DecoderLoad, MissingTensors) {
  const ModelConfig config = tiny("qwen3");
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.1.self_attn.k_norm.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight"}) {
    auto tensors = tensors_of(config);
    erase(tensors, name);
    expect_refused(ErrorCode::kNotFound, {name}, config, tensors);
  }
  const ModelConfig biased = tiny("qwen2");
  auto tensors = tensors_of(biased);
  erase(tensors, "model.layers.1.self_attn.v_proj.bias");
  expect_refused(ErrorCode::kNotFound, {"v_proj.bias", "[16]"}, biased, tensors);
  const ModelConfig gpt_oss = tiny("gpt_oss", R"(,"num_local_experts":4)");
  for (const char* name : {"self_attn.sinks", "mlp.router.bias", "mlp.experts.gate_up_proj",
                           "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"}) {
    tensors = tensors_of(gpt_oss);
    erase(tensors, std::string("model.layers.1.") + name);
    expect_refused(ErrorCode::kNotFound, {name}, gpt_oss, tensors);
  }
}

TEST_F(DecoderLoad, WrongShapesAndTypes) {
  const ModelConfig config = tiny("llama");
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  auto tensors = tensors_of(config);
  tensor(tensors, k).shape = {32, 16};
  expect_refused(ErrorCode::kCorruptFile, {k, "[32, 16]", "[16, 32]"}, config, tensors);
  tensor(tensors, k).shape = {512};
  expect_refused(ErrorCode::kCorruptFile, {k, "[512]", "[16, 32]"}, config, tensors);
  tensor(tensors, k) = {k, DType::kI64, {16, 32}, std::string(16 * 32 * 8, '\0')};
  expect_refused(ErrorCode::kUnsupported, {k, "int64"}, config, tensors);
  tensors = tensors_of(config);
  tensor(tensors, "model.norm.weight").shape = {1, 32};
  expect_refused(ErrorCode::kCorruptFile, {"model.norm.weight", "[1, 32]", "[32]"}, config,
                 tensors);
}

TEST_F(DecoderLoad, NumbersThatAreNotFiniteAreNamed) {
  const ModelConfig config = tiny("qwen2", R"(,"tie_word_embeddings":false)");
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.bias",
        "model.layers.0.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"}) {
    for (const uint32_t bits : {0x7fc00000u, 0x7f800000u, 0xff800000u}) {
      auto tensors = tensors_of(config);
      TensorToWrite& bad = tensor(tensors, name);
      std::memcpy(bad.bytes.data() + bad.bytes.size() / 8 * 4, &bits, sizeof bits);
      expect_refused(ErrorCode::kCorruptFile, {std::string("tensor ") + name + " holds"}, config,
                     tensors);
    }
  }
}

TEST_F(DecoderLoad, TensorsWithoutAPlace) {
  const ModelConfig config = tiny("llama");
  auto tensors = tensors_of(config);
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {8}, std::string(32, '\0')});
  tensors.push_back({"model.mtp_block.0.mlp.up_proj.weight", DType::kF32, {1}, "abcd"});
  EXPECT_NO_THROW(load(config, tensors));
  tensors.push_back({"model.layers.0.self_attn.q_norm.weight", DType::kF32, {1}, "abcd"});
  tensors.push_back({"model.layers.2.mlp.up_proj.weight", DType::kF32, {1}, "abcd"});
  expect_refused(ErrorCode::kUnsupported, {"2 tensors", "q_norm", "layers.2.mlp"}, config, tensors);
}

TEST_F(DecoderLoad, ATiedHeadIgnoresAStoredOne) {
  const ModelConfig tied = tiny("llama", R"(,"tie_word_embeddings":true)");
  auto tensors = tensors_of(tied);
  EXPECT_NO_THROW(load(tied, tensors));
  const int64_t parameters = parameters_;
  tensors.push_back({"lm_head.weight", DType::kF32, {48, 32}, std::string(48 * 32 * 4, '\0')});
  EXPECT_NO_THROW(load(tied, tensors));
  EXPECT_EQ(parameters_, parameters);
}

TEST_F(DecoderLoad, LayoutsOfOtherFamilies) {
  const ModelConfig llama = tiny("llama");
  expect_refused(ErrorCode::kUnsupported, {"qkv_proj", "llama"}, llama,
                 tensors_of(llama, {CheckpointLayout::kPaddle, "ernie."}));
  const ModelConfig ernie = tiny("ernie4_5");
  expect_refused(ErrorCode::kUnsupported, {"without fused qkv_proj"}, ernie,
                 tensors_of(ernie, {CheckpointLayout::kTorch, "ernie."}));
}

TEST_F(DecoderLoad, StoredDtypesMix) {
  const ModelConfig config = tiny("qwen2");
  auto tensors = tensors_of(config);
  const std::vector<float> halves(16, 0.5f);
  tensor(tensors, "model.layers.0.self_attn.k_proj.bias") = {
      "model.layers.0.self_attn.k_proj.bias", DType::kBF16, {16}, encode(halves, DType::kBF16)};
  tensor(tensors, "model.layers.0.self_attn.v_proj.bias") = {
      "model.layers.0.self_attn.v_proj.bias", DType::kF64, {16}, encode(halves, DType::kF64)};
  EXPECT_NO_THROW(load(config, tensors));
}

TEST_F(DecoderLoad, AFileThatShrinksIsAnError) {
  const ModelConfig config = tiny("llama");
  const std::string bytes = safetensors_file(tensors_of(config));
  folder_.write("model.safetensors", bytes);
  const Checkpoint checkpoint(folder_.path());
  std::filesystem::resize_file(folder_.path() / "model.safetensors", bytes.size() / 2);
  expect_error(ErrorCode::kCorruptFile, {"model.safetensors", "do not change"},
               [&] { make_decoder(*backend_, config, &checkpoint, {}); });
}

TEST_F(DecoderLoad, OutOfMemoryNamesTheTensor) {
  const ModelConfig config = tiny("llama");
  folder_.write("model.safetensors", safetensors_file(tensors_of(config)));
  const Checkpoint checkpoint(folder_.path());
  const auto small =
      make_cpu_backend({.num_threads = 1, .isa = "reference", .memory_limit = 48 * 32 * 4 + 4096});
  expect_error(ErrorCode::kOutOfMemory, {"while loading tensor model.layers.0."},
               [&] { make_decoder(*small, config, &checkpoint, {}); });
  EXPECT_EQ(small->bytes_in_use(), 0u);
}

TEST_F(DecoderLoad, OptionsOutOfRange) {
  const ModelConfig config = tiny("llama");
  const auto make = [&](int32_t rows, int32_t logit_rows) {
    make_decoder(*backend_, config, nullptr,
                 {.max_rows = rows, .max_logit_rows = logit_rows, .dummy_weights = true});
  };
  expect_error(ErrorCode::kInvalidArgument, {"max_rows is 0"}, [&] { make(0, 1); });
  expect_error(ErrorCode::kInvalidArgument, {"max_logit_rows is -1"}, [&] { make(1, -1); });
  expect_error(ErrorCode::kInvalidArgument, {"max_rows is 2147483647"},
               [&] { make(2147483647, 1); });
}

class DecoderSizes : public DecoderLoad, public testing::WithParamInterface<std::string> {};

TEST_P(DecoderSizes, PlansAreWhatIsTaken) {
  const auto backend = make_cpu_backend({.num_threads = 1, .isa = GetParam()});
  const ModelConfig config = tiny("llama", R"(,"mlp_bias":true,"attention_bias":true)");
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    const DecoderOptions options{
        .storage = storage, .max_rows = 100, .max_logit_rows = 10, .dummy_weights = true};
    const size_t before = backend->bytes_in_use();
    const auto made = make_decoder(*backend, config, nullptr, options);
    const Decoder& decoder = *made;
    EXPECT_EQ(decoder.scratch_bytes(),
              plan_scratch_bytes(config, options, backend->activation_dtype(storage)));
    EXPECT_EQ(backend->bytes_in_use() - before, decoder.weight_bytes() + decoder.scratch_bytes());
    EXPECT_GE(decoder.weight_bytes(), plan_weight_bytes(config, storage));
    const size_t element = dtype_size(storage);
    EXPECT_GE(decoder.token_weight_bytes(), decoder.weight_bytes() - 2 * 48 * 32 * element);
    EXPECT_LT(decoder.token_weight_bytes(), decoder.weight_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DecoderSizes, testing::ValuesIn(isas_under_test()));

TEST_F(DecoderLoad, CountsParameters) {
  const ModelConfig config = tiny("qwen2");
  load(config, tensors_of(config));
  const int64_t attention = (32 + 2 * 16) * 32 + (32 + 2 * 16) + 32 * 32;
  EXPECT_EQ(parameters_, 2 * 48 * 32 + 2 * (attention + 3 * 48 * 32 + 2 * 32) + 32);
}

TEST_F(DecoderLoad, DummyWeightsAreTheSameEveryTime) {
  const auto logits = [&](float spread) {
    const ModelConfig config = tiny("qwen2");
    const auto decoder =
        make_decoder(*backend_, config, nullptr, {.dummy_weights = true, .dummy_spread = spread});
    const auto cache =
        backend_->make_kv_cache(CacheLayout::uniform(2, kv_rows(1, 16, DType::kF32), 16), 1);
    const std::vector<int32_t> ids{5, 6, 7}, positions{0, 1, 2}, lens{3, 3, 3}, block{0}, last{2};
    const std::vector<SeqSlice> slices{{0, 3, 0, block}};
    const TensorView out = decoder->forward({ids, positions, lens, slices, last}, *cache);
    return std::vector<float>(out.row<float>(0), out.row<float>(0) + out.cols());
  };
  EXPECT_EQ(logits(0.02f), logits(0.02f));
  EXPECT_NE(logits(0.02f), logits(0.1f));
}

TEST_F(DecoderLoad, DummyRowsLongerThanThePool) {
  ModelConfig config = tiny("llama");
  config.intermediate_size = 1'500'000;
  EXPECT_NO_THROW(make_decoder(*backend_, config, nullptr, {.max_rows = 1, .dummy_weights = true}));
}

}  // namespace
}  // namespace headrace
