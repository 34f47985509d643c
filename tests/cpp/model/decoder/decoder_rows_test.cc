// Rows that a step takes from elsewhere, and rows that it gives before the head.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "model/checkpoint/checkpoint.h"

namespace headrace {
namespace {

using Rows = std::vector<std::vector<float>>;

class DecoderRows : public testing::TestWithParam<std::string> {
 protected:
  DecoderRows() : golden_(load_golden_case("qwen3")), harness_(make()) {}

  DecoderHarness make() const {
    return DecoderHarness(GetParam(), golden_.folder,
                          {.storage = DType::kF32, .kv_dtype = DType::kF32});
  }

  std::vector<int32_t> prompt() const { return golden_.prompts.back().prompt; }
  size_t hidden() const { return static_cast<size_t>(harness_.config().hidden_size); }

  /// A tensor of the checkpoint, [n][k] as float32.
  std::vector<float> stored(const std::string& name) const {
    const Checkpoint checkpoint(golden_.folder);
    const CheckpointTensor* tensor = checkpoint.find(name);
    EXPECT_NE(tensor, nullptr);
    std::vector<float> out(static_cast<size_t>(tensor->shape[0] * tensor->shape[1]));
    for (size_t i = 0; i < out.size(); ++i) {
      if (tensor->dtype == DType::kF32) {
        std::memcpy(&out[i], static_cast<const char*>(tensor->data) + 4 * i, 4);
      } else {
        uint16_t bits = 0;
        std::memcpy(&bits, static_cast<const char*>(tensor->data) + 2 * i, 2);
        out[i] = bf16_to_f32(bits);
      }
    }
    return out;
  }

  std::vector<float> embeddings(const std::vector<int32_t>& ids) const {
    const std::vector<float> table = stored("model.embed_tokens.weight");
    std::vector<float> out;
    for (const int32_t id : ids) {
      const auto row =
          table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(id) * hidden());
      out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(hidden()));
    }
    return out;
  }

  Rows start_and_step(int32_t sequence, const std::vector<Chunk>& chunks) {
    harness_.start(sequence, static_cast<int32_t>(prompt().size()));
    Rows out;
    for (const Chunk& chunk : chunks) {
      const Rows rows = harness_.step({chunk});
      out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  }

  std::vector<float> noise(size_t count) const {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> draw(-0.5f, 0.5f);
    std::vector<float> out(count);
    for (float& value : out) value = draw(random);
    return out;
  }

  /// The rows' part of [rows][H].
  std::vector<float> part(const std::vector<float>& rows, size_t first, size_t count) const {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first * hidden());
    return {begin, begin + static_cast<std::ptrdiff_t>(count * hidden())};
  }

  GoldenCase golden_;
  DecoderHarness harness_;
};

TEST_P(DecoderRows, GivenRowsOfTheTableGiveTheTokensBits) {
  const std::vector<int32_t> ids = prompt(), zeros(ids.size());
  const Rows want = start_and_step(0, {{.sequence = 0, .tokens = ids}});
  EXPECT_EQ(start_and_step(1, {{.sequence = 1, .tokens = zeros, .given = embeddings(ids)}}), want);
}

TEST_P(DecoderRows, AnItemMayBeCutIntoChunks) {
  const std::vector<int32_t> ids(40, 0);
  const std::vector<float> rows = noise(40 * hidden()), added = noise(40 * hidden());
  const Rows whole =
      start_and_step(0, {{.sequence = 0, .tokens = ids, .given = rows, .added = {added}}});
  std::vector<Chunk> chunks;
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 7}, {7, 32}, {39, 1}}) {
    chunks.push_back({.sequence = 1,
                      .tokens = std::vector<int32_t>(count, 0),
                      .given = part(rows, first, count),
                      .added = {part(added, first, count)}});
  }
  EXPECT_EQ(start_and_step(1, chunks), whole);
  EXPECT_NE(start_and_step(2, {{.sequence = 2, .tokens = ids, .given = rows}}), whole)
      << "what is added must count";
}

TEST_P(DecoderRows, OthersOfTheStepKeepTheirBits) {
  const std::vector<int32_t> ids = prompt();
  const Rows alone = start_and_step(0, {{.sequence = 0, .tokens = ids}});
  harness_.start(1, 5);
  harness_.start(2, static_cast<int32_t>(ids.size()));
  const Chunk item{.sequence = 1,
                   .tokens = std::vector<int32_t>(5, 0),
                   .given = noise(5 * hidden()),
                   .added = {noise(5 * hidden())}};
  const Rows rows = harness_.step({item, {.sequence = 2, .tokens = ids}});
  EXPECT_EQ(Rows(rows.begin() + 5, rows.end()), alone);
}

TEST_P(DecoderRows, RopePositionsOfTextAreItsPositions) {
  const std::vector<int32_t> ids = prompt();
  const Rows want = start_and_step(0, {{.sequence = 0, .tokens = ids}});
  std::vector<int32_t> axes;
  for (int axis = 0; axis < 3; ++axis) {
    for (size_t i = 0; i < ids.size(); ++i) axes.push_back(static_cast<int32_t>(i));
  }
  EXPECT_EQ(start_and_step(1, {{.sequence = 1, .tokens = ids, .rope_positions = axes}}), want);
  axes[ids.size() / 2] += 3;  // the first axis, which all pairs of this model go by
  EXPECT_NE(start_and_step(2, {{.sequence = 2, .tokens = ids, .rope_positions = axes}}), want);
}

TEST_P(DecoderRows, HiddenRowsTimesTheHeadAreTheLogits) {
  const std::vector<int32_t> ids = prompt();
  const Rows logits = start_and_step(0, {{.sequence = 0, .tokens = ids}});
  const auto last = static_cast<int32_t>(ids.size()) - 1;
  harness_.start(1, last + 1);
  const Rows some = harness_.hidden({.sequence = 1, .tokens = ids}, {0, 3, last});
  EXPECT_EQ(harness_.more_hidden({3}), Rows{some[1]});
  std::vector<int32_t> all(ids.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  const Rows every = harness_.more_hidden(all);
  EXPECT_EQ((Rows{every[0], every[3], every.back()}), some);

  const bool tied = harness_.config().tie_word_embeddings;
  const std::vector<float> head = stored(tied ? "model.embed_tokens.weight" : "lm_head.weight");
  for (size_t v = 0; v < logits[0].size(); ++v) {
    double sum = 0.0, size = 0.0;
    for (size_t h = 0; h < hidden(); ++h) {
      const double product = double{every[3][h]} * head[v * hidden() + h];
      sum += product;
      size += std::abs(product);
    }
    // Of a float32 sum of H products, in any order.
    ASSERT_NEAR(logits[3][v], sum, size * static_cast<double>(hidden()) * 0x1p-24) << v;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DecoderRows, testing::ValuesIn(isas_under_test()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
