// Images and clips over a fake model, whose tokens change with any row or position that is wrong.

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/media/media_jobs.h"

namespace headrace {
namespace {

using testing::add_embeddings;
using testing::add_pixels;
using testing::add_text;
using testing::expected_tokens;
using testing::FakeControl;
using testing::FakeEngine;
using testing::FakeShape;
using testing::FakeTower;
using testing::FakeTowerControl;
using testing::kFakeHidden;
using testing::MediaJob;
using testing::read_all;
using Ids = std::vector<int32_t>;

struct Media {
  explicit Media(ModelOptions options = small(), int32_t group = 1, int32_t outputs = 2,
                 FakeShape shape = {})
      : control(std::make_shared<FakeTowerControl>()),
        tower(std::make_shared<FakeTower>(kFakeHidden, group, outputs, control)) {
    shape.tower = tower;
    fake = std::make_unique<FakeEngine>(options, shape);
  }

  static ModelOptions small() {
    ModelOptions options = FakeEngine::default_options();
    options.max_encoder_tokens = 4;
    options.encoder_cache_bytes = 4096;
    return options;
  }
  Request submit(const MediaJob& job) { return fake->engine->submit("m", job.options()); }
  ModelStats stats() { return fake->engine->model_stats("m"); }
  void expect_right(const MediaJob& job) {
    const Output out = read_all(submit(job).results());
    EXPECT_EQ(out.error_message, "");
    EXPECT_EQ(out.token_ids, expected_tokens(job, *tower, job.max_tokens));
  }

  std::shared_ptr<FakeTowerControl> control;
  std::shared_ptr<FakeTower> tower;
  std::unique_ptr<FakeEngine> fake;
};

MediaJob image_job(uint64_t seed, int32_t before = 5, int32_t behind = 9) {
  MediaJob job;
  add_text(job, before, 3);
  add_pixels(job, seed, 1, 4, 6);
  add_text(job, behind, 9);
  return job;
}

TEST(EngineMedia, RowsAndPositionsAreThoseOfTheItems) {
  for (const int32_t group : {1, 2}) {
    Media media(Media::small(), group);
    MediaJob job = image_job(1);
    add_pixels(job, 2, 9, 2, 2, group);
    add_text(job, 3, 1);
    add_embeddings(job, 3, 7, 1, kFakeHidden);
    media.expect_right(job);
    MediaJob only;
    add_pixels(only, 4, 1, 1, 1);
    media.expect_right(only);
  }
}

TEST(EngineMedia, EveryChunkSizeGivesTheSameTokens) {
  MediaJob job = image_job(1, 3, 2);
  add_pixels(job, 2, 8, 2, 3);
  add_text(job, 2, 1);
  for (const int32_t chunk : {1, 2, 3, 5, 7, 11, 16, 17, 30, 64}) {
    SCOPED_TRACE(chunk);
    ModelOptions options = Media::small();
    options.max_num_batched_tokens = 64;
    options.max_prefill_chunk = chunk;
    Media(options).expect_right(job);
  }
}

TEST(EngineMedia, SecondQuestionsRunNoTower) {
  Media media;
  media.expect_right(image_job(1));
  const int begun = media.control->begun;
  EXPECT_GT(begun, 0);
  MediaJob second = image_job(1);
  add_text(second, 20, 30);
  media.expect_right(second);
  EXPECT_EQ(media.control->begun, begun);
  EXPECT_GT(media.stats().prefix_hit_tokens, 0u);
  // Another prefix: no block is found, but the rows are.
  media.expect_right(image_job(1, 6));
  EXPECT_EQ(media.control->begun, begun);
  EXPECT_GT(media.stats().encoder_hit_tokens, 0u);
  // The item lies in cached blocks alone: it is not even looked for.
  MediaJob whole;
  add_pixels(whole, 5, 1, 4, 4);
  add_text(whole, 3, 1);
  media.expect_right(whole);
  const uint64_t found = media.stats().encoder_hit_tokens;
  const int before = media.control->begun;
  media.expect_right(whole);
  EXPECT_EQ(media.stats().encoder_hit_tokens, found);
  EXPECT_EQ(media.control->begun, before);
}

TEST(EngineMedia, PrefixHitsMayEndBeforeInsideAndBehindAnItem) {
  Media media;
  MediaJob job = image_job(1, 20, 30);  // rows at positions 20 to 43, blocks of 16
  for (const int32_t cut : {18, 32, 33, 44, 48, 60}) {
    SCOPED_TRACE(cut);
    media.fake->engine->clear_prefix_cache("m");
    MediaJob first = job;
    first.max_tokens = 1;
    if (cut < 44) {
      first.media.clear();
      first.prompt.resize(16);
      if (cut >= 32) {  // the same item, with another end
        first = job;
        first.prompt.resize(44);
      }
    } else {
      first.prompt.resize(static_cast<size_t>(cut));
    }
    media.expect_right(first);
    media.expect_right(job);
  }
}

TEST(EngineMedia, OneIdsAnotherKeySharesNothing) {
  Media media;
  MediaJob one = image_job(1), other = image_job(2);
  one.media[0].key = {1, 2, 3, 4};
  other.media[0].key = {1, 2, 3, 5};
  media.expect_right(one);
  const uint64_t hits = media.stats().prefix_hit_tokens;
  media.expect_right(other);
  EXPECT_EQ(media.stats().prefix_hit_tokens, hits);
  // Who vouches for a key is believed.
  MediaJob liar = image_job(2);
  liar.media[0].key = one.media[0].key;
  const Output out = read_all(media.submit(liar).results());
  EXPECT_EQ(out.token_ids, expected_tokens(one, *media.tower, one.max_tokens));
  // The same rows elsewhere on the axes are other keys and values.
  MediaJob turned = image_job(1);
  turned.media[0].key = one.media[0].key;
  turned.media[0].runs[0].grid = {};
  turned.media[0].runs[0].steps = {};
  const Output in_turn = read_all(media.submit(turned).results());
  EXPECT_EQ(in_turn.token_ids, expected_tokens(turned, *media.tower, turned.max_tokens));
  EXPECT_NE(in_turn.token_ids, out.token_ids);
}

TEST(EngineMedia, CountsTokensOfImagesAndClips) {
  Media media;
  MediaJob job = image_job(1);
  add_pixels(job, 2, 6, 2, 2);
  add_text(job, 1, 1);
  Request request = media.submit(job);
  read_all(request.results());
  const RequestStats stats = request.results().stats();
  EXPECT_EQ(stats.image_tokens, 24);
  EXPECT_EQ(stats.video_tokens, 12);
  EXPECT_EQ(media.stats().encoded_tokens, 36u);
}

TEST(EngineMedia, OthersGoOnWhileAnItemIsEncoded) {
  Media media;
  media.control->pieces_of_run = 1000;
  testing::FakeControl& steps = *media.fake->control;
  steps.hold();
  Request text =
      media.fake->submit({3, 4, 5}, {.temperature = 0, .max_tokens = 200, .ignore_eos = true});
  steps.wait_until_held();
  Request image = media.submit(image_job(1));
  // 24 rows in 1000 pieces: 4 rows are 167 pieces.
  for (int step = 0; step < 5; ++step) {
    steps.step_once();
    steps.wait_until_held();
    EXPECT_EQ(media.control->pieces, 167 * step) << "the image comes behind the first step";
  }
  steps.resume();
  EXPECT_EQ(read_all(text.results()).token_ids, testing::fake_greedy({3, 4, 5}, 200));
  read_all(image.results());
  EXPECT_EQ(media.control->pieces, 1000);
}

TEST(EngineMedia, WhoLeavesInMidEncodingLeavesNothing) {
  Media media;
  const size_t before = media.stats().memory_bytes;
  media.control->pieces_of_run = 1 << 30;  // none is ever done, and a step without rows does one
  Request cancelled = media.submit(image_job(1, 0));
  while (media.control->pieces < 5) std::this_thread::yield();
  EXPECT_GT(media.stats().memory_bytes, before);
  cancelled.cancel();
  cancelled.wait();
  EXPECT_EQ(media.control->alive, 0);
  EXPECT_EQ(media.stats().memory_bytes, before);
  EXPECT_EQ(media.stats().encoder_cache_bytes, 0u);
  RequestOptions late = image_job(2, 0).options();
  late.timeout = std::chrono::milliseconds(20);
  const Output out = read_all(media.fake->engine->submit("m", late).results());
  EXPECT_EQ(out.error_code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(media.control->alive, 0);
  EXPECT_EQ(media.stats().memory_bytes, before);
  Request released = media.submit(image_job(3, 0));
  while (media.control->alive == 0) std::this_thread::yield();
  media.fake->engine->release_model("m");
  EXPECT_EQ(released.results().finish_reason(), FinishReason::kAbort);
  EXPECT_EQ(media.control->alive, 0);
}

TEST(EngineMedia, WhoWaitsForTheSameItemGoesOnWithIt) {
  constexpr int kPieces = 10;
  Media media;
  media.control->pieces_of_run = kPieces;
  media.control->held = true;
  Request first = media.submit(image_job(1));
  while (media.control->pieces == 0) std::this_thread::yield();
  MediaJob other = image_job(1), unlike = image_job(2);
  other.prompt[0] = 30;  // no prefix to wait for
  unlike.prompt[0] = 31;
  Request second = media.submit(other), third = media.submit(unlike);
  first.cancel();
  media.control->release();
  first.wait();
  EXPECT_EQ(first.results().finish_reason(), FinishReason::kAbort);
  EXPECT_EQ(read_all(second.results()).token_ids,
            expected_tokens(other, *media.tower, other.max_tokens));
  read_all(third.results());
  EXPECT_EQ(media.control->pieces, 2 * kPieces);
  EXPECT_EQ(media.control->begun, 2);
  EXPECT_EQ(media.stats().encoded_tokens, 48u);
}

TEST(EngineMedia, AnItemThatFailsEndsItsOwnRequestByName) {
  Media media;
  media.control->failures = 1;
  MediaJob job;
  add_embeddings(job, 3, 4, 0, kFakeHidden);
  add_pixels(job, 1, 1, 2, 2);
  add_text(job, 4, 1);
  const Output out = read_all(media.submit(job).results());
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(out.error_message.find("media[1]: "), 0u) << out.error_message;
  EXPECT_EQ(media.control->alive, 0);
  media.expect_right(job);
}

TEST(EngineMedia, StepsGoAheadBehindTheLastRowOfAnImage) {
  Media media(Media::small(), 1, 2, {.ahead = true});
  MediaJob job = image_job(1), other = image_job(2);
  job.max_tokens = other.max_tokens = 60;
  const FakeControl& steps = *media.fake->control;
  media.expect_right(job);
  EXPECT_GE(steps.covered, 58);
  const int covered = steps.covered;
  Request first = media.submit(job), second = media.submit(other);
  for (const auto& [request, asked] : {std::pair(&first, &job), std::pair(&second, &other)}) {
    EXPECT_EQ(read_all(request->results()).token_ids, expected_tokens(*asked, *media.tower, 60));
  }
  EXPECT_GE(steps.covered - covered, 50);
}

struct Crowd {
  std::string name;
  bool ahead = false;
  bool guesses = false;
  OutOfBlocks out_of_blocks = OutOfBlocks::kPreempt;
  int32_t group = 1;
};

class EngineMediaCrowd : public ::testing::TestWithParam<Crowd> {};

TEST_P(EngineMediaCrowd, NobodyIsLostOnATenthOfTheCache) {
  const Crowd& crowd = GetParam();
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ModelOptions options = Media::small();
  options.num_kv_blocks = 13;  // a tenth of what 8 of 256 tokens could use
  options.max_model_len = 200;
  options.max_num_batched_tokens = 24;
  options.encoder_cache_bytes = 1024;  // of 64 rows at most
  options.out_of_blocks = crowd.out_of_blocks;
  if (crowd.guesses) options.speculative.method = "ngram";
  Media media(options, crowd.group, 2,
              {.num_host_blocks = crowd.guesses ? 0 : 8,
               .ahead = crowd.ahead,
               .first_vision_token = crowd.group == 2 ? testing::kPlaceholder : 0});
  media.control->pieces_of_run = 3;
  const size_t before = media.stats().memory_bytes;
  std::vector<std::pair<MediaJob, Request>> requests;
  int cancels = 0;
  for (int i = 0; i < 300; ++i) {
    MediaJob job = testing::random_job(random, crowd.group, kFakeHidden);
    RequestOptions given = job.options();
    given.priority = static_cast<int32_t>(random() % 3) - 1;
    Request request = media.fake->engine->submit("m", std::move(given));
    requests.emplace_back(std::move(job), std::move(request));
    if (random() % 6 == 0) requests[random() % requests.size()].second.cancel(), ++cancels;
    if (random() % 30 == 0) media.control->failures = 1;
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
  size_t whole = 0;
  for (auto& [job, request] : requests) {
    const Output out = read_all(request.results());
    const auto count = static_cast<int32_t>(out.token_ids.size());
    ASSERT_EQ(out.token_ids, expected_tokens(job, *media.tower, count));
    ASSERT_NE(out.error_code, ErrorCode::kInternal) << out.error_message;
    whole += out.finish_reason == FinishReason::kLength;
  }
  EXPECT_GT(whole, 100u);
  EXPECT_GT(cancels, 10);
  media.fake->engine->stop_model("m");
  const ModelStats stats = media.stats();
  EXPECT_EQ(stats.state, ModelState::kStopped);
  EXPECT_EQ(stats.finished_requests, requests.size());
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  EXPECT_EQ(media.control->alive, 0);
  EXPECT_LE(stats.encoder_cache_bytes, options.encoder_cache_bytes);
  EXPECT_LE(stats.memory_bytes - before, options.encoder_cache_bytes);
  EXPECT_GT(stats.encoder_hit_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineMediaCrowd,
    ::testing::Values(Crowd{"Plain"}, Crowd{"Ahead", true}, Crowd{"Guesses", false, true},
                      Crowd{"Pairs", false, false, OutOfBlocks::kPreempt, 2},
                      Crowd{"Interrupting", false, false, OutOfBlocks::kInterruptLongest}),
    [](const auto& crowd) { return crowd.param.name; });

}  // namespace
}  // namespace headrace
