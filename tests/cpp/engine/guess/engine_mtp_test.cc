// speculative method "mtp" over a real decoder: the same bits as without, fewer steps where the
// block is right, and clear errors where there is none.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "cpp/engine/load/packed_model.h"
#include "cpp/model/checkpoint_files.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "fakes/fake_engine.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::read_all;
using Ids = std::vector<int32_t>;

struct Job {
  Ids prompt;
  SamplingParams sampling;
};

/// Texts that share beginnings, greedy and sampled.
std::vector<Job> jobs_of(int32_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Job> jobs;
  for (int i = 0; i < 10; ++i) {
    Job job;
    job.prompt.assign(static_cast<size_t>(16 * pick(0, 3)), pick(3, 4));
    for (int k = pick(1, 20); k > 0; --k) job.prompt.push_back(pick(3, vocab - 1));
    job.sampling = {.temperature = i % 3 == 0 ? 1.0f : 0.0f,
                    .seed = static_cast<uint64_t>(i),
                    .max_tokens = pick(40, 60),
                    .ignore_eos = true,
                    .logprobs = 2};
    if (i % 4 == 1) job.sampling.prompt_logprobs = 0;
    if (i % 5 == 2) job.sampling.repetition_penalty = 1.2f;
    jobs.push_back(job);
  }
  return jobs;
}

ModelOptions options_of(const fs::path& folder) {
  ModelOptions options;
  options.path = folder.string();
  options.num_threads = 1;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.max_model_len = 144;  // more than a job has
  options.num_kv_blocks = 64;
  options.block_size = 16;
  return options;
}

std::vector<Output> run(const ModelOptions& options, const std::vector<Job>& jobs,
                        ModelStats* stats, int rounds = 1) {
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  std::vector<Output> out;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Request> requests;
    for (const Job& job : jobs) {
      RequestOptions request;
      request.prompt_token_ids = job.prompt;
      request.sampling = job.sampling;
      requests.push_back(engine.submit("m", request));
    }
    for (const Request& request : requests) out.push_back(read_all(request.results()));
    *stats = engine.model_stats("m");
  }
  return out;
}

void expect_same(const Output& a, const Output& b, size_t which) {
  ASSERT_EQ(a.error_message, "") << which;
  ASSERT_EQ(a.token_ids, b.token_ids) << which;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << which;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    ASSERT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob) << which << ", token " << i;
    ASSERT_EQ(a.logprobs[i].top, b.logprobs[i].top) << which << ", token " << i;
  }
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << which;
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    ASSERT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob) << which;
  }
}

struct Setting {
  const char* name;
  const char* golden = "ernie4_5_moe";
  const char* quantization = "";
  const char* kv_cache_dtype = "auto";
  int32_t max_rows = 64, chunk = 0, blocks = 64, block_size = 16, max_loras = 0;
  bool caches = true;
  double swap_space = 0;
  int32_t ranks = 1;
};

class EngineMtp : public ::testing::TestWithParam<Setting> {};

INSTANTIATE_TEST_SUITE_P(
    Settings, EngineMtp,
    ::testing::Values(Setting{"Plain"}, Setting{"Paddle", "ernie4_5_moe_paddle"},
                      Setting{"Chunks", "ernie4_5_moe", "", "auto", 16, 5},
                      Setting{"BigBlocks", "ernie4_5_moe", "", "auto", 64, 0, 16, 64},
                      Setting{"FewBlocks", "ernie4_5_moe", "", "auto", 64, 0, 12},
                      Setting{.name = "NoPrefixes", .caches = false},
                      Setting{.name = "HostBlocks", .blocks = 12, .swap_space = 0.01},
                      Setting{.name = "Ranks", .ranks = 3},
                      Setting{"Wint8", "ernie4_5_moe", "wint8", "int8"},
                      Setting{"Wint4", "ernie4_5_moe_paddle", "wint4"},
                      Setting{"Glm", "glm4_moe", "wint4", "auto", 16, 5, 12},
                      Setting{.name = "GlmRanks", .golden = "glm4_moe", .ranks = 2},
                      Setting{"Latent", "glm4_moe_lite", "wint8", "auto", 16, 5, 12},
                      Setting{.name = "LatentRanks", .golden = "deepseek_v3", .ranks = 2},
                      Setting{"States", "qwen3_5", "", "auto", 16, 5},
                      Setting{"StatesFewBlocks", "qwen3_5_moe_wrapped", "wint8", "int8", 64, 0, 12},
                      Setting{.name = "StatesRanks", .golden = "qwen3_5_moe", .ranks = 2}),
    [](const auto& setting) { return std::string(setting.param.name); });

TEST_P(EngineMtp, OutputsAreTheSame) {
  const Setting& setting = GetParam();
  ModelOptions options = options_of(load_golden_case(setting.golden).folder);
  options.device = "cpu";
  options.tensor_parallel_size = options.num_threads = setting.ranks;
  options.quantization = setting.quantization;
  options.kv_cache_dtype = setting.kv_cache_dtype;
  const std::vector<Job> jobs = jobs_of(load_model_config(options.path).vocab_size, 5);
  ModelStats stats;
  const std::vector<Output> want = run(options, jobs, &stats);
  EXPECT_EQ(stats.drafted_tokens, 0u);
  options.speculative = {.method = "mtp", .num_speculative_tokens = 3};
  options.max_num_batched_tokens = setting.max_rows;
  options.max_prefill_chunk = setting.chunk;
  options.num_kv_blocks = setting.blocks;
  options.block_size = setting.block_size;
  options.enable_prefix_caching = setting.caches;
  options.swap_space = setting.swap_space;
  constexpr int kRounds = 3;
  const std::vector<Output> got = run(options, jobs, &stats, kRounds);
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], want[i % jobs.size()], i);
  EXPECT_GT(stats.drafted_tokens, 0u);
  EXPECT_EQ(stats.free_kv_blocks, options.num_kv_blocks);
  const bool is_short = setting.blocks == 12, swaps = setting.swap_space > 0;
  EXPECT_EQ(stats.preemptions > 0, is_short) << stats.preemptions;
  const bool hits = setting.caches && setting.block_size == 16;
  EXPECT_EQ(stats.prefix_hit_tokens > 0, hits) << stats.prefix_hit_tokens;
  EXPECT_EQ(stats.prefix_host_hit_tokens > 0, swaps) << stats.prefix_host_hit_tokens;
}

// A model whose next token depends on the last one alone, and whose block knows it: all that blocks
// add to the residual is 0, and `join` passes the embedding on.
class PlantedModel {
 public:
  static constexpr int32_t kVocab = 96, kHidden = 64, kLayers = 14, kExperts = 4, kWidth = 32;

  PlantedModel() {
    folder_.write("config.json", R"({"model_type": "ernie4_5_moe",
      "architectures": ["Ernie4_5_MoeForCausalLM"], "vocab_size": 96, "hidden_size": 64,
      "intermediate_size": 64, "num_hidden_layers": 14, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "use_bias": false, "torch_dtype": "float32", "moe_num_experts": 4, "moe_k": 2,
      "moe_intermediate_size": 32, "moe_num_shared_experts": 0, "moe_use_aux_free": false,
      "eos_token_id": 1})");
    noise("model.embed_tokens.weight", {kVocab, kHidden});
    noise("lm_head.weight", {kVocab, kHidden});
    constant("model.norm.weight", {kHidden}, 1);
    for (int i = 0; i < kLayers; ++i) add_layer("model.layers." + std::to_string(i), i > 0);
    add_layer("model.mtp_block.0", false);
    constant("model.mtp_emb_norm.0.weight", {kHidden}, 1);
    constant("model.mtp_hidden_norm.0.weight", {kHidden}, 1);
    std::vector<float> join(size_t{kHidden} * 2 * kHidden, 0.0f);
    for (size_t i = 0; i < kHidden; ++i) join[i * 2 * kHidden + i] = 1.0f;
    write("model.mtp_linear_proj.0.weight", {kHidden, 2 * kHidden}, join);
    folder_.write("model.safetensors", safetensors_file(tensors_));
  }

  const fs::path& path() const { return folder_.path(); }

 private:
  void write(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values) {
    tensors_.push_back({name, DType::kF32, shape, encode(values, DType::kF32)});
  }
  void constant(const std::string& name, const std::vector<int64_t>& shape, float value) {
    size_t count = 1;
    for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
    write(name, shape, std::vector<float>(count, value));
  }
  void noise(const std::string& name, const std::vector<int64_t>& shape) {
    std::vector<float> values(static_cast<size_t>(shape[0] * shape[1]));
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    write(name, shape, values);
  }
  void add_mlp(const std::string& stem, int64_t width) {
    constant(stem + ".gate_proj.weight", {width, kHidden}, 0);
    constant(stem + ".up_proj.weight", {width, kHidden}, 0);
    constant(stem + ".down_proj.weight", {kHidden, width}, 0);
  }
  void add_layer(const std::string& stem, bool sparse) {
    constant(stem + ".input_layernorm.weight", {kHidden}, 1);
    constant(stem + ".post_attention_layernorm.weight", {kHidden}, 1);
    noise(stem + ".self_attn.q_proj.weight", {kHidden, kHidden});
    noise(stem + ".self_attn.k_proj.weight", {kHidden / 2, kHidden});
    noise(stem + ".self_attn.v_proj.weight", {kHidden / 2, kHidden});
    constant(stem + ".self_attn.o_proj.weight", {kHidden, kHidden}, 0);
    if (!sparse) return add_mlp(stem + ".mlp", kHidden);
    noise(stem + ".mlp.gate.weight", {kExperts, kHidden});
    for (int e = 0; e < kExperts; ++e) {
      add_mlp(stem + ".mlp.experts." + std::to_string(e), kWidth);
    }
  }

  TempFolder folder_;
  std::mt19937 random_{1};
  std::vector<TensorToWrite> tensors_;
};

TEST(EngineMtpBlock, RightGuessesSaveSteps) {
  const PlantedModel model;
  ModelOptions options = options_of(model.path());
  options.max_num_seqs = 1;
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 4; ++i) {
    Ids prompt(24, 5 + i);
    jobs.push_back({prompt,
                    {.temperature = i == 3 ? 1.0f : 0.0f,
                     .seed = 3,
                     .max_tokens = 120,
                     .ignore_eos = true,
                     .logprobs = 1}});
  }
  ModelStats stats;
  const std::vector<Output> want = run(options, jobs, &stats);
  const uint64_t steps = stats.steps;
  options.speculative = {.method = "mtp", .num_speculative_tokens = 4};
  const std::vector<Output> got = run(options, jobs, &stats);
  for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], want[i], i);
  EXPECT_LT(stats.steps, steps * 3 / 4);
  EXPECT_EQ(stats.steps + stats.accepted_tokens, steps);
  EXPECT_GE(stats.accepted_tokens * 10, stats.drafted_tokens * 9);
}

// Packed files hold the block, for those who use it.
TEST(EngineMtpBlock, MayComeFromAPackedFile) {
  for (const char* quantization : {"", "wint4"}) {
    const PackedModel model("ernie4_5_moe");
    ModelOptions plain = options_of(model.file("").parent_path());
    plain.quantization = quantization;
    ModelOptions mtp = plain;
    mtp.speculative = {.method = "mtp", .num_speculative_tokens = 2};
    const Answer want = answer_of(plain);
    EXPECT_EQ(answer_of(mtp), want);
    model.pack(plain);
    plain.packed_weights = mtp.packed_weights = model.file("packed").string();
    EXPECT_EQ(answer_of(plain), want);
    EXPECT_EQ(answer_of(mtp), want);
    mtp.speculative.model = plain.path;
    expect_error(ErrorCode::kInvalidArgument, {"speculative.model", "holds the MTP block"},
                 [&] { answer_of(mtp); });
  }
}

TEST(EngineMtpBlock, MayComeFromAnotherFolder) {
  const std::string block = load_golden_case("ernie4_5_moe").folder.string();
  ModelOptions other = options_of(load_golden_case("ernie4_5_moe_interval").folder);
  other.speculative.method = "mtp";
  expect_error(ErrorCode::kNotFound, {"model.mtp_linear_proj.0.weight", "use ngram or draft_model"},
               [&] { answer_of(other); });
  other.speculative.model = block;
  const Answer borrowed = answer_of(other);
  const TempFolder empty;
  other.speculative.model = empty.path().string();
  expect_error(ErrorCode::kNotFound, {other.speculative.model}, [&] { answer_of(other); });
  other.speculative = {};
  EXPECT_EQ(borrowed, answer_of(other));
}

TEST(EngineMtpBlock, OtherModelsAreRefused) {
  ModelOptions options = options_of(load_golden_case("qwen3_moe").folder);
  options.speculative.method = "mtp";
  expect_error(ErrorCode::kUnsupported, {"mtp", "qwen3_moe", "use ngram or draft_model"},
               [&] { answer_of(options); });
  const PackedModel model("ernie4_5_moe_interval");
  model.pack();
  options = model.options();
  options.speculative.method = "mtp";
  expect_error(ErrorCode::kNotFound, {"packed", "no MTP block", "use ngram or draft_model"},
               [&] { answer_of(options); });
}

TEST(EngineMtpBlock, IsPartOfTheMemoryThatIsPlanned) {
  ModelOptions options = options_of(load_golden_case("ernie4_5_moe").folder);
  Engine engine;
  engine.install_model("without", options);
  options.speculative.method = "mtp";
  engine.install_model("with", options);
  const ModelInfo with = engine.model_info("with"), without = engine.model_info("without");
  EXPECT_EQ(with.num_parameters, without.num_parameters);
  EXPECT_EQ(with.token_weight_bytes, without.token_weight_bytes);
  EXPECT_GT(with.weight_bytes, without.weight_bytes);
  EXPECT_GT(with.scratch_bytes, without.scratch_bytes);
  // A layer more of five.
  EXPECT_EQ(with.kv_cache_bytes * 4, without.kv_cache_bytes * 5);
}

}  // namespace
}  // namespace headrace
