// Prompts with images and clips through tower and decoder, against transformers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "cpp/model/decoder_harness.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"

namespace headrace {
namespace {

struct Run {
  std::string isa, name;
};

std::vector<Run> runs() {
  std::vector<Run> out;
  for (const std::string& name : vision_golden_names()) {
    for (const std::string& isa : isas_under_test()) out.push_back({isa, name});
  }
  return out;
}

/// Rows of an item, [outputs][rows][H].
struct Encoded {
  std::vector<float> numbers;
  size_t outputs = 0, hidden = 0;

  std::vector<float> rows(size_t output, const GoldenRun& run) const {
    const size_t each = numbers.size() / outputs;
    const float* first =
        numbers.data() + output * each + static_cast<size_t>(run.first_row) * hidden;
    return {first, first + static_cast<size_t>(run.count) * hidden};
  }
};

/// A prompt's positions from `first` on, [3][count].
std::vector<int32_t> positions_of(const VisionGolden::Prompt& prompt, size_t first, size_t count) {
  std::vector<int32_t> out;
  for (const std::vector<int32_t>& axis : prompt.positions) {
    const auto begin = axis.begin() + static_cast<std::ptrdiff_t>(first);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

/// Which experts tokens go to, of models that have some for text and some for vision.
std::vector<Modality> modalities_of(const ModelConfig& config, const std::vector<int32_t>& tokens) {
  std::vector<Modality> out;
  const int32_t first = config.moe.first_vision_token;
  for (size_t i = 0; i < tokens.size() && first > 0; ++i) {
    out.push_back(tokens[i] >= first ? Modality::kVision : Modality::kText);
  }
  return out;
}

/// Tokens [first, end) of the prompt as a chunk: text, or the rows of `run`.
Chunk chunk_of(const VisionGolden::Prompt& prompt, size_t first, size_t end, const GoldenRun* run,
               const std::vector<Encoded>& items) {
  Chunk out;
  out.tokens.assign(prompt.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                    prompt.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  out.rope_positions = positions_of(prompt, first, end - first);
  if (run == nullptr) return out;
  const Encoded& item = items[static_cast<size_t>(run->item)];
  out.given = item.rows(0, *run);
  for (size_t i = 1; i < item.outputs; ++i) out.added.push_back(item.rows(i, *run));
  return out;
}

/// The prompt's last logits.
std::vector<float> read_prompt(DecoderHarness& harness, const VisionGolden::Prompt& prompt,
                               const std::vector<Encoded>& items) {
  harness.start(0, static_cast<int32_t>(prompt.tokens.size()));
  std::vector<float> last;
  const auto step = [&](size_t first, size_t end, const GoldenRun* run) {
    if (first == end) return;
    const auto rows = static_cast<int32_t>(end - first);
    Chunk chunk = chunk_of(prompt, first, end, run, items);
    chunk.modalities = modalities_of(harness.config(), chunk.tokens);
    chunk.both_ways = run != nullptr && harness.config().vision->both_ways;
    last = harness.step(chunk, {rows - 1}).front();
  };
  size_t at = 0;
  for (const GoldenRun& run : prompt.runs) {
    const auto begin = static_cast<size_t>(run.position), rows = static_cast<size_t>(run.count);
    step(at, begin, nullptr);
    step(begin, begin + rows, &run);
    at = begin + rows;
  }
  step(at, prompt.tokens.size(), nullptr);
  return last;
}

class VisionDecoder : public testing::TestWithParam<Run> {};

TEST_P(VisionDecoder, SameTokensAndLogits) {
  const VisionGolden g = load_vision_golden(GetParam().name);
  TowerHarness tower(GetParam().isa, g.folder);
  std::vector<Encoded> items;
  for (const VisionGolden::Item& item : g.items) {
    items.push_back({tower.encode(item.patches, item.grid),
                     static_cast<size_t>(tower.tower().outputs()),
                     static_cast<size_t>(tower.config().hidden_size)});
  }
  DecoderHarness harness(GetParam().isa, g.folder, {.num_sequences = 1, .max_tokens = 320});
  for (const VisionGolden::Prompt& prompt : g.prompts) {
    std::vector<float> logits = read_prompt(harness, prompt, items);
    size_t compared = 0;
    for (size_t step = 0; step < prompt.greedy.size(); ++step) {
      if (std::ranges::find(g.steps, static_cast<int32_t>(step)) != g.steps.end()) {
        const float* want = prompt.logits.data() + compared++ * logits.size();
        for (size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(logits[i], want[i], g.logit_tolerance) << "step " << step << ", id " << i;
        }
      }
      ASSERT_EQ(argmax(logits), prompt.greedy[step]) << "step " << step;
      const int32_t position = prompt.next + static_cast<int32_t>(step);
      logits = harness
                   .step({.tokens = {prompt.greedy[step]},
                          .rope_positions = {position, position, position},
                          .modalities = modalities_of(harness.config(), {prompt.greedy[step]})},
                         {0})
                   .front();
    }
    EXPECT_EQ(compared, g.steps.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, VisionDecoder, testing::ValuesIn(runs()),
                         [](const auto& test) { return test.param.isa + "_" + test.param.name; });

}  // namespace
}  // namespace headrace
