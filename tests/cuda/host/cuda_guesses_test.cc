// Guesses of tokens to come on the CUDA backend, on one GPU of the fake runtime and on several: the
// tokens and log-probabilities without them. Prompt lookup, draft models, which are on the first
// GPU alone, and MTP blocks (cuda_mtp_test.cc has more of those on one).

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/model/golden_case.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/support/rank_devices.h"

namespace headrace {
namespace {

struct Guesser {
  const char* name;
  const char* method;
  const char* model;    ///< golden case
  const char* drafter;  ///< golden case, or ""
  int32_t ranks;
  bool right;  ///< some of its guesses are
};

/// Greedy and drawn; some of which always say the same, so that it can be guessed.
std::vector<RequestOptions> requests() {
  std::vector<RequestOptions> out;
  for (int32_t i = 0; i < 4; ++i) {
    RequestOptions& one = out.emplace_back(small_request(9 + 4 * i, i, 16));
    one.sampling.logprobs = 2;
    one.sampling.seed = static_cast<uint64_t>(i);
    if (i == 1) one.sampling.temperature = 1.0f;
    if (i == 2) one.sampling.repetition_penalty = 1.2f;
    if (i == 3) one.sampling.logit_bias = {{7, 100.0f}};
  }
  return out;
}

std::vector<Output> ask(Engine& engine, bool together) {
  std::vector<Request> asked;
  std::vector<Output> out;
  for (const RequestOptions& one : requests()) {
    asked.push_back(engine.submit("m", one));
    if (!together) asked.back().wait();
  }
  for (const Request& one : asked) out.push_back(testing::read_all(one.results()));
  return out;
}

class CudaGuesses : public ::testing::TestWithParam<Guesser> {};

TEST_P(CudaGuesses, ChangeNoOutput) {
  const Guesser& guesser = GetParam();
  ModelOptions options = small_options();
  options.path = load_golden_case(guesser.model).folder;
  options.dtype = "bfloat16";
  options.max_model_len = 128;
  std::vector<Output> want;
  {
    RankDevices devices(guesser.ranks);
    devices.start(options, guesser.ranks);
    want = ask(devices.engine(), false);
    EXPECT_EQ(devices.engine().model_stats("m").drafted_tokens, 0u);
  }
  options.speculative = {.method = guesser.method, .num_speculative_tokens = 3};
  if (*guesser.drafter != 0) options.speculative.model = load_golden_case(guesser.drafter).folder;
  options.max_num_batched_tokens = 24;
  RankDevices devices(guesser.ranks);
  devices.start(options, guesser.ranks);
  expect_same(ask(devices.engine(), true), want);
  const ModelStats stats = devices.engine().model_stats("m");
  EXPECT_GT(guesser.right ? stats.accepted_tokens : stats.drafted_tokens, 0u);
  EXPECT_EQ(stats.free_kv_blocks, options.num_kv_blocks);
}

std::string name_of(const ::testing::TestParamInfo<Guesser>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaGuesses,
    ::testing::Values(Guesser{"Ngram", "ngram", "llama", "", 1, true},
                      Guesser{"NgramOn2", "ngram", "llama", "", 2, true},
                      Guesser{"Draft", "draft_model", "llama", "llama", 1, true},
                      Guesser{"DraftOn2", "draft_model", "llama", "llama", 2, true},
                      Guesser{"MtpOn3", "mtp", "ernie4_5_moe", "", 3, false}),
    name_of);
// `tests/run goldens` runs them.
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaGuesses,  // minutes in the emulation
                         ::testing::Values(Guesser{"OtherDraft", "draft_model", "llama_dynamic",
                                                   "llama_tied_mqa", 1, false},
                                           Guesser{"OtherDraftOn4", "draft_model", "llama_dynamic",
                                                   "llama_tied_mqa", 4, false}),
                         name_of);

}  // namespace
}  // namespace headrace
