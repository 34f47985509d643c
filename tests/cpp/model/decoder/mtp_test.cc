// The block that guesses tokens against what its formulas give with transformers' layer
// (tests/golden/make_mtp.py), and the same bits in whatever pieces it is computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/decoder_harness.h"
#include "cpp/model/expect_error.h"
#include "cpp/model/golden_case.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"
#include "model/sources/cache_layout.h"

namespace headrace {
namespace {

using Ids = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;

Ids count_from(int32_t first, int32_t count) {
  Ids out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

Ids part(const Ids& ids, int32_t first, int32_t count) {
  return {ids.begin() + first, ids.begin() + first + count};
}

void expect_near(const std::vector<float>& got, std::span<const float> want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(double{got[i]} - double{want[i]}));
  }
  EXPECT_LE(largest, tolerance);
}

/// The whole sequence in one step, and the block's logits of all positions but the last.
Rows guess_all(DecoderHarness& harness, const Ids& tokens) {
  const auto count = static_cast<int32_t>(tokens.size());
  harness.start(0, count);
  harness.step({{0, tokens}});
  return harness.guess({.first_position = 0,
                        .next_tokens = part(tokens, 1, count - 1),
                        .rows = count_from(0, count - 1),
                        .logit_rows = count_from(0, count - 1)});
}

class Mtp : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Cases, Mtp,
                         testing::Values("ernie4_5_moe", "ernie4_5_moe_paddle", "glm4_moe",
                                         "glm4_moe_fused", "glm4_moe_lite", "deepseek_v3",
                                         "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_wrapped",
                                         "qwen3_next"));

TEST_P(Mtp, GuessesWhatTheFormulasGuess) {
  const GoldenCase golden = load_golden_case(GetParam());
  const GoldenGuesses want = load_golden_guesses(golden);
  ASSERT_EQ(want.sequences.size(), 4u);
  for (const std::string& isa : isas_under_test()) {
    SCOPED_TRACE(isa);
    DecoderHarness harness(isa, golden.folder, {.mtp = true});
    const auto vocab = static_cast<size_t>(harness.config().vocab_size);
    for (const GoldenGuesses::Sequence& seq : want.sequences) {
      const auto count = static_cast<int32_t>(seq.tokens.size());
      SCOPED_TRACE(count);
      const Rows logits = guess_all(harness, seq.tokens);
      Ids best;
      for (const auto& row : logits) {
        const bool clear = seq.argmax.at(best.size()) >= 0;
        best.push_back(clear ? argmax(row) : -1);
      }
      EXPECT_EQ(best, seq.argmax);
      for (size_t i = 0; i < seq.rows.size(); ++i) {
        expect_near(logits[static_cast<size_t>(seq.rows[i])],
                    std::span(seq.logits).subspan(i * vocab, vocab), want.tolerance);
      }
      // Each guess goes back in with the row that it came out of.
      Ids guesses = {best.back()};
      for (size_t i = 0; i + 1 < seq.guesses.size(); ++i) {
        const int32_t from = i == 0 ? count - 2 : 0;
        const Rows next = harness.guess({.first_position = count - 1 + static_cast<int32_t>(i),
                                         .next_tokens = {guesses.back()},
                                         .input = MtpInput::kGuess,
                                         .rows = {from},
                                         .logit_rows = {0}});
        expect_near(next[0], std::span(seq.chain).subspan(i * vocab, vocab), want.tolerance);
        guesses.push_back(argmax(next[0]));
      }
      EXPECT_EQ(guesses, seq.guesses);
    }
  }
}

// Keys and values written without logits, rows kept for later, blocks of any size: the same bits.
TEST_P(Mtp, PiecesGiveTheSameBits) {
  const GoldenCase golden = load_golden_case(GetParam());
  const Ids tokens = load_golden_guesses(golden).sequences[2].tokens;  // 134
  const auto count = static_cast<int32_t>(tokens.size());
  for (const Quantization& quantization : {Quantization{}, parse_quantization("wint4", 0)}) {
    const HarnessOptions options{.quantization = quantization, .mtp = true};
    DecoderHarness whole("", golden.folder, options);
    const Rows want = guess_all(whole, tokens);
    for (const int32_t block_size : {16, 64}) {
      HarnessOptions other = options;
      other.block_size = block_size;
      other.num_threads = 2;
      DecoderHarness harness("", golden.folder, other);
      harness.start(0, count);
      // 50 positions are read at once, 40 later, then one is asked for.
      harness.step({{0, part(tokens, 0, 50)}});
      EXPECT_TRUE(harness
                      .guess({.first_position = 0,
                              .next_tokens = part(tokens, 1, 50),
                              .rows = count_from(0, 50)})
                      .empty());
      harness.step({{0, part(tokens, 50, 40)}});
      harness.keep(count_from(0, 40), 24);
      harness.step({{0, part(tokens, 90, 10)}});
      harness.keep(count_from(0, 10), 0);
      harness.guess({.first_position = 50,
                     .next_tokens = part(tokens, 51, 40),
                     .input = MtpInput::kKept,
                     .rows = count_from(24, 40)});
      const Rows got = harness.guess({.first_position = 90,
                                      .next_tokens = part(tokens, 91, 10),
                                      .input = MtpInput::kKept,
                                      .rows = count_from(0, 10),
                                      .logit_rows = {3, 9}});
      ASSERT_EQ(got.size(), 2u);
      EXPECT_EQ(got[0], want[93]);
      EXPECT_EQ(got[1], want[99]);
    }
  }
}

// The model's own answers are bit for bit those of a decoder without the block.
TEST_P(Mtp, LeavesTheModelAlone) {
  const GoldenCase golden = load_golden_case(GetParam());
  const Ids& prompt = golden.prompts[2].prompt;
  DecoderHarness plain("", golden.folder, {}), with("", golden.folder, {.mtp = true});
  EXPECT_EQ(plain.step({{0, prompt}}), with.step({{0, prompt}}));
  const Ids some = {0, 5, 69};
  plain.start(0, 0);
  with.start(0, 0);
  EXPECT_EQ(plain.step({0, prompt}, some), with.step({0, prompt}, some));
  EXPECT_EQ(plain.more({1, 2}), with.more({1, 2}));
  EXPECT_EQ(plain.more_hidden({4, 68}), with.more_hidden({4, 68}));
  EXPECT_EQ(with.more_hidden(count_from(0, 70)), with.more_hidden(count_from(0, 70)));
  EXPECT_EQ(plain.decoder().num_parameters(), with.decoder().num_parameters());
  EXPECT_EQ(plain.decoder().token_weight_bytes(), with.decoder().token_weight_bytes());
  EXPECT_GT(with.decoder().weight_bytes(), plain.decoder().weight_bytes());
}

// Plans count it, and what is quantized is what a layer's is.
TEST(MtpDecoder, IsPlannedAndQuantizedLikeALayer) {
  ModelConfig config = load_model_config(load_golden_case("ernie4_5_moe").folder);
  const Quantization wint8 = parse_quantization("wint8", 0);
  const size_t without = plan_weight_bytes(config, DType::kBF16, wint8);
  config.uses_mtp = true;
  EXPECT_GT(plan_weight_bytes(config, DType::kBF16, wint8), without);
  const ModelSources sources = list_sources(config, likely_naming(config), wint8);
  ASSERT_TRUE(sources.mtp);
  EXPECT_EQ(list_kept(sources).size(), static_cast<size_t>(config.num_layers) + 1);
  EXPECT_EQ(sources.mtp->join.quant.bits, 0);
  size_t quantized = 0;
  for (const MatrixSource* source : sources.mtp->matrices()) {
    quantized += source->quant.bits == 8 ? 1 : 0;
    EXPECT_EQ(source->site, kNoSite);
  }
  EXPECT_EQ(quantized, 4u);
  const DecoderOptions few{.max_kept_rows = 0}, many{.max_kept_rows = 1000};
  EXPECT_GE(plan_scratch_bytes(config, many, DType::kF32),
            plan_scratch_bytes(config, few, DType::kF32) +
                1000 * sizeof(float) * static_cast<size_t>(config.hidden_size));
}

// Experts are counted as a layer's are: a row meets those that it is sent to, and its guesses none
// of the model's own. Routers keep their numbers.
TEST(MtpDecoder, MayHaveExperts) {
  ModelConfig config = load_model_config(load_golden_case("glm4_moe").folder);
  const Quantization wint8 = parse_quantization("wint8", 0);
  const ModelSources without = list_sources(config, likely_naming(config), wint8);
  config.uses_mtp = true;
  const ModelSources sources = list_sources(config, likely_naming(config), wint8);
  EXPECT_EQ(sources.active_parameters(), without.active_parameters());
  size_t quantized = 0;
  for (const MatrixSource* source : sources.mtp->matrices()) {
    quantized += source->quant.bits == 8 ? 1 : 0;
    const bool whole = source->role == MatrixRole::kRouter || source == &sources.mtp->join;
    EXPECT_EQ(source->quant.bits, whole ? 0 : 8) << source->name;
  }
  EXPECT_EQ(quantized, 6u);  // attention's two, the experts' and the shared one's
}

TEST(MtpDecoder, ACheckpointWithoutItIsAnError) {
  for (const auto& [name, tensor] : {std::pair{"ernie4_5_moe_interval", "model.mtp_linear_proj.0"},
                                     std::pair{"glm4_moe_groups", "model.layers.2.eh_proj"},
                                     std::pair{"qwen3_5_last", "mtp.fc"}}) {
    const GoldenCase golden = load_golden_case(name);
    expect_error(ErrorCode::kNotFound, {"mtp", tensor, "use ngram or draft_model"},
                 [&] { DecoderHarness("", golden.folder, {.mtp = true}); });
  }
}

}  // namespace
}  // namespace headrace
