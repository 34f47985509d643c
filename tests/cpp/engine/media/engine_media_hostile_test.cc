// What a request with media can get wrong: refused on the caller's thread, by the item's name.

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/media/media_jobs.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::FakeEngine;
using testing::FakeTower;
using testing::kFakeHidden;
using testing::MediaJob;
using testing::read_all;

constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

struct Case {
  const char* name;
  ErrorCode code;
  std::vector<const char*> words;
  std::function<void(MediaJob&)> spoil;
};

/// media[0]: embeddings of 4 rows in two runs; media[1]: an image of 2 x 3 rows.
MediaJob good_job() {
  MediaJob job;
  testing::add_text(job, 2, 1);
  testing::add_embeddings(job, 1, 4, 1, kFakeHidden);
  testing::add_text(job, 2, 5);
  testing::add_pixels(job, 2, 1, 2, 3);
  testing::add_text(job, 2, 8);
  return job;
}

MediaRun& run(MediaJob& job, size_t item = 1) { return job.media[item].runs[0]; }
PixelInput& pixels(MediaJob& job) { return job.media[1].pixels; }
EmbeddingInput& embeddings(MediaJob& job) { return job.media[0].embeddings; }

void set_value(MediaJob& job, size_t index, float value) {
  std::vector<float> values = *embeddings(job).values;
  values[index] = value;
  embeddings(job).values = std::make_shared<const std::vector<float>>(values);
}

std::vector<Case> cases() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {
      {"no runs", kBad, {"media[1]", "no runs"}, [](auto& j) { j.media[1].runs.clear(); }},
      {"no rows", kBad, {"media[1]", "0 rows"}, [](auto& j) { run(j).count = 0; }},
      {"too many", kBad, {"media[1]", "2147483647 rows"}, [](auto& j) { run(j).count = kMost; }},
      {"before 0", kBad, {"media[0]", "position -1"}, [](auto& j) { run(j, 0).position = -1; }},
      {"far", kBad, {"media[1]", "2147483647"}, [](auto& j) { run(j).position = kMost; }},
      {"overlap", kBad, {"media[1]", "behind the run"}, [](auto& j) { run(j).position = 4; }},
      {"order", kBad, {"media[1]", "runs[0]"}, [](auto& j) { std::swap(j.media[0], j.media[1]); }},
      {"row twice",
       kBad,
       {"media[0]", "row 1", "not 2"},
       [](auto& j) { j.media[0].runs[1].first_row = 1; }},
      {"rows left", kBad, {"media[0]", "4 rows", "2"}, [](auto& j) { j.media[0].runs.pop_back(); }},
      {"grid", kBad, {"media[1]", "1 x 2 x 2"}, [](auto& j) { run(j).grid.w = 2; }},
      {"huge grid", kBad, {"media[1]", "grid"}, [](auto& j) { run(j).grid = {kMost, kMost, 2}; }},
      {"negative grid", kBad, {"media[1]", "-1"}, [](auto& j) { run(j).grid = {1, -1, -6}; }},
      {"turned grid",
       kBad,
       {"media[1]", "3 x 2 rows", "make 2 x 3"},
       [](auto& j) { run(j).grid = {1, 3, 2}; }},
      {"no steps", kBad, {"media[1]", "0 steps"}, [](auto& j) { run(j).steps.clear(); }},
      {"steps alone", kBad, {"media[0]", "no grid"}, [](auto& j) { run(j, 0).steps = {0}; }},
      {"step below 0", kBad, {"media[1]", "-1"}, [](auto& j) { run(j).steps = {-1}; }},
      {"step too far", kBad, {"media[1]", "2147483647"}, [](auto& j) { run(j).steps = {kMost}; }},
      {"both",
       kBad,
       {"media[1]", "leave one out"},
       [](auto& j) { j.media[1].embeddings = j.media[0].embeddings; }},
      {"neither", kBad, {"media[1]", "neither"}, [](auto& j) { pixels(j).data = nullptr; }},
      {"nan", kBad, {"media[0]", "embeddings[5] is nan"}, [=](auto& j) { set_value(j, 5, nan); }},
      {"infinite",
       kBad,
       {"media[0]", "embeddings[31] is -inf"},
       [](auto& j) { set_value(j, 31, -std::numeric_limits<float>::infinity()); }},
      {"rows", kBad, {"media[0]", "2147483647 rows"}, [](auto& j) { embeddings(j).rows = kMost; }},
      {"added", kBad, {"media[0]", "added is 3"}, [](auto& j) { embeddings(j).added = 3; }},
      {"added below 0", kBad, {"media[0]", "-1"}, [](auto& j) { embeddings(j).added = -1; }},
      {"numbers", kBad, {"media[0]", "32 numbers"}, [](auto& j) { embeddings(j).added = 0; }},
      {"others added",
       kBad,
       {"media[0]", "added is 2", "behind 1 layers"},
       [](auto& j) { embeddings(j).added = 2; }},
      {"table", kBad, {"media[1]", "767"}, [](auto& j) { pixels(j).table.pop_back(); }},
      {"nan table", kBad, {"media[1]", "table"}, [=](auto& j) { pixels(j).table[9] = nan; }},
      {"bytes", kBad, {"media[1]", "288 bytes"}, [](auto& j) { pixels(j).layout.frames = 2; }},
      {"layout", kBad, {"media[1]"}, [](auto& j) { pixels(j).layout.height = -8; }},
      {"huge layout",
       kBad,
       {"media[1]"},
       [](auto& j) { pixels(j).layout.frames = int64_t{1} << 62; }},
      {"sides", kBad, {"media[1]", "288 bytes"}, [](auto& j) { pixels(j).layout.height = 12; }},
      {"other rows",
       kBad,
       {"media[1]", "make 6 rows", "have 4"},
       [](auto& j) {
         run(j).count = 4;
         run(j).grid = {1, 2, 2};
       }},
      {"patch",
       kBad,
       {"media[1]", "patch_size is 1", "patches of 2"},
       [](auto& j) {
         pixels(j).layout.patch_size = 1;
         pixels(j).layout.height /= 2;
         pixels(j).layout.width /= 2;
       }},
      {"merge",
       kBad,
       {"media[1]", "merge_size is 1", "patches of 2"},
       [](auto& j) { pixels(j).layout.merge_size = 1; }},
      {"temporal",
       kBad,
       {"media[1]", "temporal_patch_size is 1", "patches of 2"},
       [](auto& j) { pixels(j).layout.temporal_patch_size = 1; }},
      {"as many numbers",  // 3 * 8 * 1 * 1, as of 2 frames of 2 * 2
       kBad,
       {"media[1]", "patch_size is 1"},
       [](auto& j) { pixels(j).layout = {1, 4, 6, 1, 2, 8}; }},
  };
}

std::unique_ptr<FakeEngine> engine(size_t cache_bytes = 4096) {
  ModelOptions options = FakeEngine::default_options();
  options.encoder_cache_bytes = cache_bytes;
  testing::FakeShape shape;
  shape.tower =
      std::make_shared<FakeTower>(kFakeHidden, 1, 2, std::make_shared<testing::FakeTowerControl>());
  return std::make_unique<FakeEngine>(options, shape);
}

TEST(EngineMediaHostile, BadItemsAreNamed) {
  const auto fake = engine();
  EXPECT_NO_THROW(read_all(fake->engine->submit("m", good_job().options()).results()));
  for (const Case& bad : cases()) {
    SCOPED_TRACE(bad.name);
    MediaJob job = good_job();
    bad.spoil(job);
    try {
      fake->engine->submit("m", job.options());
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), bad.code) << error.what();
      for (const char* word : bad.words) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_EQ(fake->engine->model_stats("m").finished_requests, 1u);
}

TEST(EngineMediaHostile, ItemsThatNoMemoryIsSetAsideForAreRefused) {
  const auto fake = engine(64);
  expect_error(ErrorCode::kLimitExceeded, {"media[0]", "encoder_cache_bytes 64"},
               [&] { fake->engine->submit("m", good_job().options()); });
  MediaJob large;
  testing::add_pixels(large, 1, 1, 8, 1);
  testing::add_text(large, 1, 1);
  const auto other = engine();
  EXPECT_NO_THROW(read_all(other->engine->submit("m", large.options()).results()));
}

TEST(EngineMediaHostile, AModelThatTakesNoneSaysSo) {
  FakeEngine fake;
  expect_error(ErrorCode::kUnsupported, {"media", "no images"},
               [&] { fake.engine->submit("m", good_job().options()); });
}

}  // namespace
}  // namespace headrace
