// A model shared out to NUMA nodes gives the bits of one that isn't.

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"
#include "parity/ranks/ranks.h"

namespace headrace {
namespace {

struct Format {
  const char* name;
  DType storage;
  DType kv_dtype;
  Quantization quantization;
};
constexpr Format kFormats[] = {
    {"float32", DType::kF32, DType::kF32, {}},      {"bfloat16", DType::kBF16, DType::kBF16, {}},
    {"float16", DType::kF16, DType::kF16, {}},      {"wint8", DType::kBF16, DType::kBF16, {8, 64}},
    {"wint4", DType::kBF16, DType::kBF16, {4, 32}}, {"kv_int8", DType::kBF16, DType::kI8, {}},
    {"kv_uint4", DType::kBF16, DType::kU4, {}},     {"kv_fp8", DType::kBF16, DType::kF8E4M3, {}},
};

using Logits = std::vector<std::vector<float>>;

/// Prefill in chunks, a mixed step, decodes: all logits.
Logits answers(const std::string& folder, const HarnessOptions& options) {
  DecoderHarness harness("", folder, options);
  std::mt19937 random(7);
  const auto tokens = [&](size_t count) {
    std::vector<int32_t> out(count);
    for (int32_t& id : out) {
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(harness.config().vocab_size));
    }
    return out;
  };
  Logits all;
  const auto add = [&](const Logits& more) { all.insert(all.end(), more.begin(), more.end()); };
  harness.start(0, 70);
  harness.start(1, 20);
  add(harness.step({{0, tokens(50)}}));
  add(harness.step({{0, tokens(20)}, {1, tokens(20)}}));
  for (int i = 0; i < 8; ++i) add(harness.step({{0, tokens(1)}, {1, tokens(1)}}));
  return all;
}

class NumaDecoder : public testing::TestWithParam<Format> {};

TEST_P(NumaDecoder, GivesTheBitsOfOneRank) {
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  const Format& format = GetParam();
  HarnessOptions options;
  options.storage = format.storage;
  options.kv_dtype = format.kv_dtype;
  options.quantization = format.quantization;
  // Several query heads to a KV head, one KV head for two ranks, and the shipped model.
  for (const std::string& folder :
       {std::string(load_golden_case("llama").folder),
        std::string(load_golden_case("llama_tied_mqa").folder), std::string(HEADRACE_TINY_MODEL)}) {
    SCOPED_TRACE(folder);
    options.numa_nodes.clear();
    options.num_threads = 1;
    const Logits one = answers(folder, options);
    options.numa_nodes = ranks;
    for (const int32_t threads : {2, 3, 5}) {
      options.num_threads = threads;
      EXPECT_EQ(answers(folder, options), one) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, NumaDecoder, testing::ValuesIn(kFormats),
                         [](const auto& format) { return std::string(format.param.name); });

}  // namespace
}  // namespace headrace
