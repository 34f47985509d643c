// Adapters of a real decoder in the engine: the same bits whatever runs beside a request, and
// memory that comes back.

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "cpp/model/golden_case.h"
#include "cpp/model/lora_files.h"
#include "fakes/fake_engine.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::read_all;

/// A model with three adapters on disk.
class EngineLoraDecoder : public ::testing::Test {
 protected:
  EngineLoraDecoder() : golden_(load_golden_case("qwen3_window")) {
    for (uint32_t seed : {1u, 2u, 3u}) {
      AdapterToWrite adapter;
      adapter.seed = seed;
      adapter.rank = 2 * static_cast<int32_t>(seed);
      folders_.push_back(std::make_unique<TempFolder>());
      write_adapter(*folders_.back(), load_model_config(golden_.folder), adapter);
    }
  }

  ModelOptions options() const {
    ModelOptions out;
    out.path = golden_.folder;
    out.num_threads = 1;
    out.max_num_seqs = 8;
    out.num_kv_blocks = 256;
    out.block_size = 16;
    out.max_loras = 3;
    out.max_lora_rank = 6;
    return out;
  }

  std::unique_ptr<Engine> start(const ModelOptions& options) const {
    auto engine = std::make_unique<Engine>();
    engine->install_model("m", options);
    engine->start_model("m");
    for (size_t i = 0; i < folders_.size(); ++i) {
      engine->load_lora("m", std::to_string(i + 1), folders_[i]->path().string());
    }
    return engine;
  }

  /// Prompts share their beginnings, so that a block of another adapter would fit by its tokens.
  Request submit(Engine& engine, size_t number) const {
    const std::vector<int32_t>& ids = golden_.prompts.back().prompt;
    RequestOptions request;
    const auto length = std::min<size_t>(ids.size(), 40 + 7 * (number / 4));
    request.prompt_token_ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(length));
    request.sampling.max_tokens = 30;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 0;
    request.sampling.temperature = number % 2 == 0 ? 0.0f : 1.0f;
    request.sampling.seed = number;
    if (number % 4 > 0) request.lora_name = std::to_string(number % 4);
    return engine.submit("m", request);
  }

  static constexpr size_t kRequests = 16;

  std::vector<Output> run(const ModelOptions& options, bool together,
                          ModelStats* stats = nullptr) const {
    const auto engine = start(options);
    std::vector<Request> requests;
    std::vector<Output> out;
    for (size_t i = 0; i < kRequests; ++i) {
      requests.push_back(submit(*engine, i));
      if (!together) requests.back().wait();
    }
    for (const Request& request : requests) out.push_back(read_all(request.results()));
    if (stats != nullptr) *stats = engine->model_stats("m");
    return out;
  }

  static void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(a[i].token_ids, b[i].token_ids) << "request " << i;
      ASSERT_EQ(a[i].logprobs.size(), b[i].logprobs.size());
      for (size_t k = 0; k < a[i].logprobs.size(); ++k) {
        EXPECT_EQ(a[i].logprobs[k].logprob, b[i].logprobs[k].logprob) << i << ", " << k;
      }
    }
  }

  GoldenCase golden_;
  std::vector<std::unique_ptr<TempFolder>> folders_;
};

TEST_F(EngineLoraDecoder, SameBitsTogetherChunkedCachedPreemptedAndThreaded) {
  ModelOptions alone = options();
  alone.enable_prefix_caching = false;
  const std::vector<Output> want = run(alone, false);
  std::set<std::vector<int32_t>> different;
  for (size_t i : {0u, 1u, 2u, 3u}) different.insert(want[i].token_ids);
  EXPECT_EQ(different.size(), 4u) << "adapters too weak to show a mix-up";

  expect_same(run(options(), true), want);

  ModelStats stats;
  expect_same(run(options(), false, &stats), want);
  EXPECT_GT(stats.prefix_hit_tokens, 0u);

  ModelOptions chunked = options();
  chunked.max_prefill_chunk = 7;
  chunked.max_num_batched_tokens = 20;
  chunked.num_threads = 3;
  expect_same(run(chunked, true), want);

  ModelOptions tight = options();
  tight.num_kv_blocks = 24;  // of two groups of layers
  stats = {};
  // Requests only meet if the first still run when the last are submitted.
  for (int tries = 0; tries < 100 && stats.preemptions == 0; ++tries) {
    expect_same(run(tight, true, &stats), want);
  }
  EXPECT_GT(stats.preemptions, 0u);
}

TEST_F(EngineLoraDecoder, ReloadedUnderTheSameNameItIsAnother) {
  const auto engine = start(options());
  const std::vector<int32_t> first = read_all(submit(*engine, 4 + 1).results()).token_ids;
  engine->unload_lora("m", "1");
  engine->load_lora("m", "1", folders_[2]->path().string());
  const Request again = submit(*engine, 4 + 1);
  EXPECT_NE(read_all(again.results()).token_ids, first);
  EXPECT_EQ(again.results().stats().cached_tokens, 0);
}

TEST_F(EngineLoraDecoder, UnloadingGivesTheMemoryBack) {
  const auto engine = start(options());
  for (size_t i = 0; i < 4; ++i) read_all(submit(*engine, i).results());
  const size_t loaded = engine->model_stats("m").memory_bytes;
  size_t bytes = 0;
  for (const LoraInfo& lora : engine->loras("m")) {
    EXPECT_EQ(lora.num_modules, 7 * engine->model_info("m").num_layers);
    bytes += lora.bytes;
    engine->unload_lora("m", lora.name);
  }
  EXPECT_LE(engine->model_stats("m").memory_bytes, loaded - bytes);
  for (int round = 0; round < 3; ++round) {
    engine->load_lora("m", "again", folders_[2]->path().string());
    engine->unload_lora("m", "again");
  }
  EXPECT_LE(engine->model_stats("m").memory_bytes, loaded - bytes);
}

}  // namespace
}  // namespace headrace
