// Images and clips over a real decoder on the CPU, with a tower without arithmetic: the bits of
// log-probabilities.

#include <gtest/gtest.h>

#include <cmath>
#include <future>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/hold.h"
#include "cpp/engine/media/media_jobs.h"
#include "cpp/engine/tiny_folder.h"
#include "engine/engine_access.h"
#include "engine/load/load_model.h"

namespace headrace {
namespace {

using testing::add_embeddings;
using testing::add_pixels;
using testing::add_text;
using testing::FakeTower;
using testing::MediaJob;
using testing::read_all;
using testing::TinyFolder;

constexpr int32_t kHidden = 64;

ModelOptions tiny_options(const TinyFolder& folder) {
  ModelOptions options;
  options.path = folder.path();
  options.device = "cpu";
  options.dummy_weights = true;
  options.num_threads = 1;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.num_kv_blocks = 64;
  options.block_size = 16;
  options.encoder_cache_bytes = 64 << 10;
  return options;
}

/// An engine whose models have a FakeTower.
std::unique_ptr<Engine> seeing_engine() {
  auto loader = [](const std::string& name, const ModelOptions& options,
                   const internal::ReplicaPlace& replica, Logger& logger) {
    internal::LoadedModel out = internal::load_model(name, options, replica, logger);
    auto tower =
        std::make_shared<FakeTower>(kHidden, 1, 2, std::make_shared<testing::FakeTowerControl>());
    out.encoder.limits.tower = out.encoder.tower = tower;
    out.encoder.limits.most_scratch = 1 << 20;
    return out;
  };
  return internal::EngineAccess::make({}, loader);
}

std::vector<MediaJob> jobs() {
  std::vector<MediaJob> out(5);
  for (MediaJob& job : out) add_text(job, 20, 3);
  add_pixels(out[0], 1, 1, 3, 5);
  add_pixels(out[1], 2, 10, 2, 2);
  add_text(out[1], 5, 1);
  add_pixels(out[1], 1, 1, 3, 5);
  add_embeddings(out[2], 1, 9, 1, kHidden);
  add_embeddings(out[3], 2, 9, 0, kHidden);
  for (MediaJob& job : out) add_text(job, 9, 9);
  return out;
}

std::vector<Output> run(const ModelOptions& options, bool together, ModelStats* stats = nullptr) {
  const auto engine = seeing_engine();
  engine->install_model("m", options);
  engine->start_model("m");
  std::promise<void> all_submitted;
  if (together) testing::hold(*engine, all_submitted.get_future().share());
  std::vector<Request> requests;
  for (const MediaJob& job : jobs()) {
    RequestOptions request = job.options();
    request.sampling.max_tokens = 40;
    request.sampling.logprobs = 2;
    requests.push_back(engine->submit("m", request));
    if (!together) requests.back().wait();
  }
  all_submitted.set_value();
  std::vector<Output> out;
  for (const Request& request : requests) out.push_back(read_all(request.results()));
  if (stats != nullptr) *stats = engine->model_stats("m");
  return out;
}

void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(a[i].error_message, "");
    EXPECT_EQ(a[i].token_ids, b[i].token_ids);
    const auto same = [](const PositionLogprobs& x, const PositionLogprobs& y) {
      return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
    };
    EXPECT_EQ(a[i].logprobs.size(), 40u);
    EXPECT_TRUE(std::ranges::equal(a[i].logprobs, b[i].logprobs, same));
  }
}

class EngineMediaDecoder : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineMediaDecoder, TokensAndLogprobsDependOnTheRequestAlone) {
  const TinyFolder folder;
  ModelOptions options = tiny_options(folder);
  options.dtype = GetParam();
  ModelOptions cold = options;
  cold.enable_prefix_caching = false;
  const std::vector<Output> alone = run(cold, false);
  EXPECT_NE(alone[2].logprobs[0].logprob, alone[4].logprobs[0].logprob);
  EXPECT_NE(alone[2].logprobs[0].logprob, alone[3].logprobs[0].logprob);
  expect_same(alone, run(options, false));
  expect_same(alone, run(options, true));
  for (const int32_t chunk : {1, 3, 7, 16}) {
    SCOPED_TRACE(chunk);
    ModelOptions chunked = options;
    chunked.max_prefill_chunk = chunk;
    expect_same(alone, run(chunked, true));
  }
  ModelOptions threads = options;
  threads.num_threads = 2;
  expect_same(alone, run(threads, true));
  ModelOptions tight = options;
  tight.num_kv_blocks = 8;
  tight.max_model_len = 120;
  tight.encoder_cache_bytes = 16 << 10;
  ModelStats stats;
  expect_same(alone, run(tight, true, &stats));
  EXPECT_GT(stats.preemptions, 0u);
  ModelOptions guessing = options;
  guessing.speculative.method = "ngram";
  expect_same(alone, run(guessing, true));
}

INSTANTIATE_TEST_SUITE_P(DTypes, EngineMediaDecoder, ::testing::Values("float32"),
                         [](const auto& dtype) { return dtype.param; });

/// Numbers that are finite and overflow in the decoder, on blocks that others get later.
TEST(EngineMediaDecoder, RowsThatOverflowEndTheirRequestAndLeaveNothingInItsBlocks) {
  const TinyFolder folder;
  ModelOptions options = tiny_options(folder);
  options.num_kv_blocks = 8;
  options.max_model_len = 120;
  const auto engine = seeing_engine();
  engine->install_model("m", options);
  engine->start_model("m");
  MediaJob text;
  add_text(text, 37, 3);
  const auto answer = [&] {
    engine->clear_prefix_cache("m");
    RequestOptions request = text.options();
    request.sampling.max_tokens = 30;
    request.sampling.logprobs = 1;
    return read_all(engine->submit("m", request).results());
  };
  const Output before = answer();
  ASSERT_EQ(before.error_message, "");
  MediaJob bad;
  add_embeddings(bad, 1, 100, 1, kHidden);
  std::vector<float> values = *bad.media[0].embeddings.values;
  for (float& value : values) value = std::copysign(3e38f, value);
  bad.media[0].embeddings.values = std::make_shared<const std::vector<float>>(values);
  const Output failed = read_all(engine->submit("m", bad.options()).results());
  EXPECT_EQ(failed.finish_reason, FinishReason::kError);
  EXPECT_NE(failed.error_message.find("NaN or infinity"), std::string::npos)
      << failed.error_message;
  const Output after = answer();
  EXPECT_EQ(after.error_message, "");
  EXPECT_EQ(after.token_ids, before.token_ids);
  EXPECT_TRUE(std::ranges::equal(after.logprobs, before.logprobs, [](const auto& a, const auto& b) {
    return a.token == b.token && a.logprob == b.logprob;
  }));
}

TEST(EngineMediaDecoder, EmbeddingsOfAnyModelAreRoundedToItsDtype) {
  const TinyFolder folder;
  for (const char* dtype : {"bfloat16", "float16"}) {
    SCOPED_TRACE(dtype);
    Engine engine;
    ModelOptions options = tiny_options(folder);
    options.dtype = dtype;
    options.encoder_cache_bytes = 0;
    engine.install_model("m", options);
    engine.start_model("m");
    const ModelInfo info = engine.model_info("m");
    EXPECT_TRUE(info.takes_embeddings);
    EXPECT_FALSE(info.vision);
    EXPECT_GT(info.encoder_cache_bytes, 0u);
    MediaJob job;
    add_embeddings(job, 1, 9, 1, kHidden);
    add_text(job, 3, 1);
    const Output out = read_all(engine.submit("m", job.options()).results());
    EXPECT_EQ(out.error_message, "");
    EXPECT_EQ(out.token_ids.size(), 8u);
    add_pixels(job, 1, 1, 1, 1);
    testing::expect_error(ErrorCode::kUnsupported, {"media[1]", "no vision tower"},
                          [&] { engine.submit("m", job.options()); });
  }
}

}  // namespace
}  // namespace headrace
