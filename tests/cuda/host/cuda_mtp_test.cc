// MTP blocks on the CUDA backend: guesses as transformers' layers give them, the same bits in
// whatever pieces, and requests with the same outputs as without.

#include <gtest/gtest.h>

#include <numeric>

#include "cpp/model/golden_case.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using Ids = std::vector<int32_t>;

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
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
}

class CudaMtp : public ::testing::TestWithParam<const char*> {
 protected:
  DecoderHarness harness(DType dtype, const char* quantization = "") {
    gpus_.push_back(std::make_unique<cuda::EmulatedGpu>());
    return {gpus_.back()->backend(dtype),
            golden_.folder,
            {.storage = dtype,
             .kv_dtype = dtype,
             .quantization = parse_quantization(quantization, 0),
             .mtp = true}};
  }
  /// The whole sequence in one step, and the block's logits of all positions but the last.
  static Rows guess_all(DecoderHarness& harness, const Ids& tokens) {
    const auto count = static_cast<int32_t>(tokens.size());
    harness.start(0, count);
    harness.step({{0, tokens}});
    return harness.guess({.first_position = 0,
                          .next_tokens = part(tokens, 1, count - 1),
                          .rows = count_from(0, count - 1),
                          .logit_rows = count_from(0, count - 1)});
  }

  GoldenCase golden_ = load_golden_case(GetParam());
  std::vector<std::unique_ptr<cuda::EmulatedGpu>> gpus_;
};

INSTANTIATE_TEST_SUITE_P(Cases, CudaMtp, ::testing::Values("ernie4_5_moe", "glm4_moe", "qwen3_5"));

TEST_P(CudaMtp, GuessesWhatTheFormulasGuess) {
  const GoldenGuesses want = load_golden_guesses(golden_);
  DecoderHarness decoder = harness(DType::kF32);
  const auto vocab = static_cast<size_t>(decoder.config().vocab_size);
  for (const size_t which : {0, 1}) {
    const GoldenGuesses::Sequence& seq = want.sequences.at(which);
    const auto count = static_cast<int32_t>(seq.tokens.size());
    SCOPED_TRACE(count);
    const Rows logits = guess_all(decoder, seq.tokens);
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool clear = seq.argmax.at(i) >= 0;
      ASSERT_EQ(clear ? argmax(logits[i]) : -1, seq.argmax[i]) << i;
    }
    for (size_t i = 0; i < seq.rows.size(); ++i) {
      expect_near(logits[static_cast<size_t>(seq.rows[i])],
                  std::span(seq.logits).subspan(i * vocab, vocab), want.tolerance);
    }
    // Each guess goes back in with the row that it came out of.
    Ids guesses = {argmax(logits.back())};
    for (size_t i = 0; i + 1 < seq.guesses.size(); ++i) {
      const Rows next = decoder.guess({.first_position = count - 1 + static_cast<int32_t>(i),
                                       .next_tokens = {guesses.back()},
                                       .input = MtpInput::kGuess,
                                       .rows = {i == 0 ? count - 2 : 0},
                                       .logit_rows = {0}});
      expect_near(next[0], std::span(seq.chain).subspan(i * vocab, vocab), want.tolerance);
      guesses.push_back(argmax(next[0]));
    }
    EXPECT_EQ(guesses, seq.guesses);
  }
}

// Keys and values written without logits, rows kept for later: the same bits.
TEST_P(CudaMtp, PiecesGiveTheSameBits) {
  const Ids tokens = part(load_golden_guesses(golden_).sequences[2].tokens, 0, 60);
  for (const char* quantization : {"", "wint4"}) {
    DecoderHarness whole = harness(DType::kBF16, quantization);
    const Rows want = guess_all(whole, tokens);
    DecoderHarness pieces = harness(DType::kBF16, quantization);
    pieces.start(0, 60);
    pieces.step({{0, part(tokens, 0, 30)}});
    EXPECT_TRUE(pieces
                    .guess({.first_position = 0,
                            .next_tokens = part(tokens, 1, 30),
                            .rows = count_from(0, 30)})
                    .empty());
    pieces.step({{0, part(tokens, 30, 20)}});
    pieces.keep(count_from(0, 20), 24);
    pieces.step({{0, {tokens[50]}}});
    pieces.keep({0}, 0);
    pieces.guess({.first_position = 30,
                  .next_tokens = part(tokens, 31, 20),
                  .input = MtpInput::kKept,
                  .rows = count_from(24, 20)});
    const Rows got = pieces.guess({.first_position = 50,
                                   .next_tokens = {tokens[51]},
                                   .input = MtpInput::kKept,
                                   .rows = {0},
                                   .logit_rows = {0}});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0], want[50]);
  }
}

struct Setting {
  const char* name;
  const char* quantization = "";
  int32_t max_rows = 48, chunk = 0, blocks = 64, tokens = 24;
  const char* golden = "ernie4_5_moe";
};

class CudaEngineMtp : public ::testing::TestWithParam<Setting> {
 protected:
  /// Rounds of the same requests, at once.
  std::vector<Output> answers(const ModelOptions& options, int rounds, ModelStats* stats) {
    cuda::EmulatedGpu gpu;
    const auto engine = emulated_engine(gpu);
    engine->install_model("m", options);
    engine->start_model("m");
    std::vector<Output> out;
    for (int round = 0; round < rounds; ++round) {
      std::vector<Request> requests;
      for (int32_t i = 0; i < 4; ++i) {
        RequestOptions request = small_request(9 + 4 * i, i, GetParam().tokens);
        request.sampling.logprobs = 2;
        request.sampling.seed = static_cast<uint64_t>(i);
        if (i == 1) request.sampling.temperature = 1.0f;
        if (i == 2) request.sampling.repetition_penalty = 1.2f;
        requests.push_back(engine->submit("m", request));
      }
      for (const Request& request : requests) out.push_back(testing::read_all(request.results()));
    }
    *stats = engine->model_stats("m");
    EXPECT_GT(gpu.api.calls("launch"), 0);
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Settings, CudaEngineMtp,
    ::testing::Values(Setting{"Plain"}, Setting{"Chunks", "wint4", 16, 5},
                      Setting{"FewBlocks", "", 48, 0, 9, 44},
                      Setting{.name = "States", .chunk = 5, .golden = "qwen3_5_moe"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaEngineMtp, OutputsAreTheSame) {
  ModelOptions options = small_options();
  options.path = load_golden_case(GetParam().golden).folder;
  options.dtype = "bfloat16";
  options.quantization = GetParam().quantization;
  options.max_model_len = 128;
  ModelStats stats;
  const std::vector<Output> want = answers(options, 1, &stats);
  EXPECT_EQ(stats.drafted_tokens, 0u);
  options.speculative = {.method = "mtp", .num_speculative_tokens = 3};
  options.max_num_batched_tokens = GetParam().max_rows;
  options.max_prefill_chunk = GetParam().chunk;
  options.num_kv_blocks = GetParam().blocks;
  const std::vector<Output> got = answers(options, 2, &stats);
  for (size_t i = 0; i < got.size(); ++i) {
    const Output& a = got[i];
    const Output& b = want[i % want.size()];
    EXPECT_EQ(a.error_message, "");
    EXPECT_EQ(a.token_ids, b.token_ids) << i;
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (size_t j = 0; j < a.logprobs.size(); ++j) {
      EXPECT_EQ(a.logprobs[j].logprob, b.logprobs[j].logprob) << i << ", token " << j;
    }
  }
  EXPECT_GT(stats.drafted_tokens, 0u);
  EXPECT_EQ(stats.free_kv_blocks, options.num_kv_blocks);
  EXPECT_EQ(stats.preemptions > 0, GetParam().blocks == 9);
}

}  // namespace
}  // namespace headrace
