// The positions that an MTP block's rows have where a prompt has pictures.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "engine/guess/mtp_drafter.h"

namespace headrace::internal {
namespace {

/// A vocabulary of one token. Keeps what it was asked.
class Runner final : public MtpRunner {
 public:
  /// Of a row: its position, and what RoPE goes by.
  using Row = std::array<int32_t, 4>;

  TensorView guess(const MtpStep& step) override {
    std::vector<Row>& rows = steps.emplace_back();
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const auto [t, h, w] = step.batch.rope_position(i);
      rows.push_back({step.batch.positions[i], t, h, w});
    }
    has_axes.push_back(!step.batch.rope_positions.empty());
    return {};
  }
  void keep(std::span<const int32_t> /*rows*/, int64_t /*first*/) override {}
  int32_t max_logit_rows() const override { return 8; }
  void sample(TensorView /*logits*/, std::span<const SampleRow> /*rows*/,
              std::span<SampleResult> results) override {
    for (SampleResult& result : results) result.token = 0;
  }

  std::vector<std::vector<Row>> steps;
  std::vector<bool> has_axes;
};

/// Two tokens, an image of 2 x 3 rows, text.
RopeLayout layout() {
  MediaInput image;
  image.runs.push_back({2, 6, 0, {1, 2, 3}, {0}});
  return RopeLayout({{image}});
}

struct Known {
  std::vector<int32_t> tokens;
  UnreadRows unread{};
  std::vector<int32_t> guesses{};
};

TEST(MtpPositions, GoOnBehindPictures) {
  const RopeLayout rope = layout();
  Runner runner;
  MtpDrafter drafter(runner, {.max_rows = 32, .most_unread = 4, .max_kept = 16});
  const std::vector<int32_t> blocks{0};
  Known seen{std::vector<int32_t>(12)}, plain{std::vector<int32_t>(3)};
  const GuessText text{blocks, 12, &rope}, other{blocks, 3};
  // A prompt's rows are more than may be kept: all but the last are read at once.
  drafter.take(std::vector<MtpDrafter::Computed>{
      {&seen.unread, text, 0, 0, std::span(seen.tokens).first(11)},
      {&plain.unread, other, 11, 0, std::span(plain.tokens).first(2)}});
  ASSERT_EQ(runner.steps.size(), 1u);
  EXPECT_EQ(runner.steps[0], (std::vector<Runner::Row>{{0, 0, 0, 0},
                                                       {1, 1, 1, 1},
                                                       {2, 2, 2, 2},
                                                       {3, 2, 2, 3},
                                                       {4, 2, 2, 4},
                                                       {5, 2, 3, 2},
                                                       {6, 2, 3, 3},
                                                       {7, 2, 3, 4},
                                                       {8, 5, 5, 5},
                                                       {9, 6, 6, 6}}));
  // Kept rows, then a guess behind a guess; text keeps its positions beside them.
  const SamplerState sampler({.temperature = 0.0f}, 0, {}, {});
  drafter.guess(std::vector<Drafter::Request>{
      {seen.tokens, text, 2, &sampler, &seen.guesses, nullptr, &seen.unread},
      {plain.tokens, other, 1, &sampler, &plain.guesses, nullptr, &plain.unread}});
  ASSERT_EQ(runner.steps.size(), 3u);
  EXPECT_EQ(runner.steps[1], (std::vector<Runner::Row>{{10, 7, 7, 7}, {0, 0, 0, 0}, {1, 1, 1, 1}}));
  EXPECT_EQ(runner.steps[2], (std::vector<Runner::Row>{{11, 8, 8, 8}}));
  EXPECT_EQ(runner.has_axes, (std::vector<bool>{true, true, true}));
}

TEST(MtpPositions, TextAloneHasNoAxes) {
  Runner runner;
  MtpDrafter drafter(runner, {.max_rows = 32, .most_unread = 4, .max_kept = 16});
  Known plain{std::vector<int32_t>(9)};
  const std::vector<int32_t> blocks{0};
  drafter.take(std::vector<MtpDrafter::Computed>{
      {&plain.unread, {blocks, 9}, 0, 0, std::span(plain.tokens).first(8)}});
  EXPECT_EQ(runner.has_axes, (std::vector<bool>{false}));
}

}  // namespace
}  // namespace headrace::internal
