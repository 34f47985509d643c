// A decoder's steps take no memory of their own: all of it is there when the first one begins.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "cpp/model/golden_case.h"
#include "fakes/failing_new.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/model_config.h"
#include "model/decoder/decoder.h"
#include "model/load/load_config.h"
#include "model/load/make_decoder.h"

namespace headrace {
namespace {

class DecoderAllocations : public testing::TestWithParam<std::string> {};

/// A prompt in one step, then tokens one by one; the first round takes what the backend keeps.
TEST_P(DecoderAllocations, AStepTakesNone) {
  const GoldenCase golden = load_golden_case(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  const auto backend = make_cpu_backend({.num_threads = 2});
  const Checkpoint checkpoint(golden.folder);
  const auto decoder = make_decoder(*backend, config, &checkpoint, {.storage = DType::kBF16});
  const CacheLayout layout = decoder->cache_layout({.dtype = DType::kBF16});
  const auto cache = backend->make_kv_cache(layout, 1, layout.has_states() ? 1 : 0);
  const std::vector<int32_t> blocks{0};
  const auto step = [&](const std::vector<int32_t>& ids, int32_t start) {
    std::vector<int32_t> positions, lens;
    for (size_t i = 0; i < ids.size(); ++i) positions.push_back(start + static_cast<int32_t>(i));
    for (const int32_t position : positions) lens.push_back(position + 1);
    SeqSlice seq{0, static_cast<int32_t>(ids.size()), start, blocks};
    if (layout.has_states()) seq.state_out = 0;
    if (layout.has_states() && start > 0) seq.state_in = 0;
    const std::vector<int32_t> last{static_cast<int32_t>(ids.size()) - 1};
    const StepBatch batch{.token_ids = ids,
                          .positions = positions,
                          .rope_lens = lens,
                          .seqs = {&seq, 1},
                          .logit_rows = last};
    constexpr int64_t kPlenty = 1 << 20;
    allocations_left = kPlenty;
    decoder->forward(batch, *cache);
    return kPlenty - std::exchange(allocations_left, -1);
  };
  for (const bool counts : {false, true}) {
    const int64_t prompt = step({1, 2, 3, 4, 5, 6, 7}, 0);
    const int64_t token = step({8}, 7);
    if (!counts) continue;
    EXPECT_EQ(prompt, 0);
    EXPECT_EQ(token, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderAllocations,
                         testing::Values("qwen3", "ernie4_5_moe", "qwen2_moe", "lfm2", "qwen3_5",
                                         "granite_hybrid", "nemotron_h_moe", "falcon_h1"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
