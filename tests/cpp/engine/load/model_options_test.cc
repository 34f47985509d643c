#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "engine/load/load_model.h"
#include "headrace/status.h"

namespace headrace::internal {
namespace {

using O = ModelOptions;

struct BadOption {
  const char* name;
  std::function<void(O&)> spoil;
  std::vector<std::string> mentions;
  ErrorCode code = ErrorCode::kInvalidArgument;
};

class BadOptions : public ::testing::TestWithParam<BadOption> {};

TEST_P(BadOptions, AreRefusedByName) {
  O options{.path = "folder"};
  validate_model_options(options);
  GetParam().spoil(options);
  try {
    validate_model_options(options);
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), GetParam().code);
    for (const auto& word : GetParam().mentions) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fields, BadOptions,
    ::testing::Values(
        BadOption{"method",
                  [](O& o) { o.speculative.method = "eagle"; },
                  {"'eagle'", "use ngram, draft_model or mtp"},
                  ErrorCode::kUnsupported},
        BadOption{"draft_model",
                  [](O& o) { o.speculative.method = "draft_model"; },
                  {"draft_model", "speculative.model"}},
        BadOption{"ngram_model",
                  [](O& o) { o.speculative = {.method = "ngram", .model = "other"}; },
                  {"ngram", "other", "leave it out"}},
        BadOption{"drafts",
                  [](O& o) { o.speculative = {.method = "ngram", .num_speculative_tokens = 33}; },
                  {"num_speculative_tokens", "[1, 32]", "33"}},
        BadOption{"ngram_65",
                  [](O& o) { o.speculative = {.method = "ngram", .max_ngram_size = 65}; },
                  {"max_ngram_size", "[1, 64]", "65"}},
        BadOption{"ngram_6",
                  [](O& o) { o.speculative = {.method = "ngram", .min_ngram_size = 6}; },
                  {"min_ngram_size", "[1, 5]", "6"}},
        BadOption{"path", [](O& o) { o.path = ""; }, {"path"}},
        BadOption{"device", [](O& o) { o.device = "tpu"; }, {"tpu"}, ErrorCode::kUnsupported},
        BadOption{"gpu", [](O& o) { o.device = "cuda:1x"; }, {"cuda:1x"}, ErrorCode::kUnsupported},
        BadOption{"no_gpu", [](O& o) { o.device = "cuda:"; }, {"cuda:N"}, ErrorCode::kUnsupported},
        BadOption{"dtype", [](O& o) { o.dtype = "int8"; }, {"dtype", "int8", "bfloat16"}},
        BadOption{"kv", [](O& o) { o.kv_cache_dtype = "int4"; }, {"kv_cache_dtype", "int4"}},
        BadOption{"threads", [](O& o) { o.num_threads = -1; }, {"num_threads", "-1"}},
        BadOption{"len", [](O& o) { o.max_model_len = -5; }, {"max_model_len", "-5"}},
        BadOption{"len_1", [](O& o) { o.max_model_len = 1; }, {"max_model_len", "2"}},
        BadOption{"len_big", [](O& o) { o.max_model_len = 1 << 25; }, {"max_model_len"}},
        BadOption{"seqs_0", [](O& o) { o.max_num_seqs = 0; }, {"max_num_seqs", "[1, 4096]"}},
        BadOption{"seqs", [](O& o) { o.max_num_seqs = 4097; }, {"max_num_seqs", "4097"}},
        BadOption{"tokens", [](O& o) { o.max_num_batched_tokens = 63; }, {"63", "64"}},
        BadOption{"block", [](O& o) { o.block_size = 48; }, {"block_size", "16, 32, 64", "48"}},
        BadOption{"blocks", [](O& o) { o.num_kv_blocks = -1; }, {"num_kv_blocks"}},
        BadOption{
            "use_0", [](O& o) { o.memory_utilization = 0; }, {"memory_utilization", "(0, 1]"}},
        BadOption{"use_2", [](O& o) { o.memory_utilization = 2; }, {"memory_utilization", "2"}},
        BadOption{"use_nan",
                  [](O& o) { o.memory_utilization = std::numeric_limits<double>::quiet_NaN(); },
                  {"nan"}},
        BadOption{"swap_low", [](O& o) { o.swap_space = -0.5; }, {"swap_space", "-0.5", "0: off"}},
        BadOption{"swap_high", [](O& o) { o.swap_space = 1e300; }, {"swap_space", "1e+300"}},
        BadOption{"swap_nan",
                  [](O& o) { o.swap_space = std::numeric_limits<double>::quiet_NaN(); },
                  {"swap_space", "nan"}},
        BadOption{"swap_without_cache",
                  [](O& o) {
                    o.swap_space = 4;
                    o.enable_prefix_caching = false;
                  },
                  {"swap_space is 4", "enable_prefix_caching"}},
        BadOption{"ratio", [](O& o) { o.total_memory_ratio = 1.5; }, {"total_memory_ratio", "1.5"}},
        BadOption{"ratio_nan",
                  [](O& o) { o.total_memory_ratio = std::numeric_limits<double>::quiet_NaN(); },
                  {"total_memory_ratio", "nan"}},
        BadOption{"leftover",
                  [](O& o) { o.memory_leftover_bytes = 77; },
                  {"memory_leftover_bytes", "77", "total_memory_ratio"}},
        BadOption{"policy",
                  [](O& o) { o.out_of_blocks = static_cast<OutOfBlocks>(3); },
                  {"out_of_blocks", "3", "[0, 2]"}},
        BadOption{"chunk", [](O& o) { o.max_prefill_chunk = -1; }, {"max_prefill_chunk", "-1"}}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace headrace::internal
