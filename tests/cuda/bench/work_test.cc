// The benchmarks' arithmetic.

#include "benchmarks/cuda/work.h"

#include <numeric>

#include "benchmarks/cuda/report.h"
#include "rows_file.h"

namespace headrace::bench {
namespace {

// Published sizes: 8.03 and 1.24 billion parameters, embedding and norms included.
TEST(ModelShape, CountsWhatATokenMeets) {
  const ModelShape big = model_shape("llama-3.1-8b"), small = model_shape("llama-3.2-1b");
  const auto parameters = [](const ModelShape& shape) {
    return shape.layer_parameters(1) + double(shape.router_parameters() + shape.head_parameters());
  };
  EXPECT_EQ(parameters(big) + double(big.vocab * big.hidden + (2 * big.layers + 1) * big.hidden),
            8030261248);
  EXPECT_EQ(parameters(small) + double((2 * small.layers + 1) * small.hidden), 1235814400);
  EXPECT_EQ(big.kv_bytes_per_token(), 131072);
  EXPECT_EQ(big.decode_bytes(2, 1024), 2.0 * 7504658432 + 2 * 1024 * 131072.0);
  EXPECT_THROW(model_shape("gpt-5"), std::invalid_argument);
}

// Published: 30.5 billion parameters, of which a token meets 3.3, embedding included.
TEST(ModelShape, CountsTheExpertsThatRowsChoose) {
  const ModelShape shape = model_shape("qwen3-30b-a3b");
  const double rest = double(shape.router_parameters() + 2 * shape.head_parameters());
  EXPECT_NEAR(shape.layer_parameters(1) + rest, 3.35e9, 0.02e9);
  EXPECT_NEAR(shape.layer_parameters(100000) + rest, 30.53e9, 0.01e9);
  EXPECT_DOUBLE_EQ(shape.used_experts(1), 8);
  EXPECT_NEAR(shape.used_experts(64), 125.9, 0.1);
  const double head = double(shape.head_parameters());
  EXPECT_EQ(shape.decode_bytes(1, 0, weight_bits("wint4")),
            shape.layer_parameters(1) * 4.5 / 8 + head * 8.25 / 8 +
                4.0 * double(shape.router_parameters()));
  EXPECT_THROW(weight_bits("wint3"), std::invalid_argument);
}

TEST(ModelShape, LayersAndHeadAreAllItsLinears) {
  const ModelShape shape = model_shape("llama-3.1-8b");
  int64_t sum = 0;
  for (const LinearShape& linear : linear_shapes(shape)) {
    sum += linear.n * linear.k * (linear.name == "head" ? 1 : shape.layers);
  }
  EXPECT_EQ(double(sum), shape.layer_parameters(1) + double(shape.head_parameters()));
}

TEST(Work, FlopsAndBytes) {
  EXPECT_EQ(linear_flops(2, 3, 5), 60);
  EXPECT_EQ(prefill_flops(3, 2, 8), 4 * 6 * 16);
  EXPECT_EQ(kv_bytes(64, 8192, 8, 128), 64.0 * 8192 * 4096);
}

TEST(TowerShape, CountsItsProducts) {
  EXPECT_EQ(segment_flops(10, 4, 8), 4.0 * (16 + 16 + 4) * 8);
  const TowerShape toy = tower_shape("toy");
  const double linears = 96 * 80 + 2 * 80 * (4 * 80 + 3 * 68);
  EXPECT_EQ(toy.flops(64), 2 * (64 * linears + 16 * 320 * (320 + 64)) + 4.0 * 80 * (64 * 64) +
                               4.0 * 80 * (4 * 16 * 16));
  EXPECT_THROW(tower_shape("clip"), std::invalid_argument);
}

TEST(Work, MedianAndGeometricMean) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({}), 0);
  EXPECT_DOUBLE_EQ(geometric_mean({2, 8}), 4);
  EXPECT_EQ(geometric_mean({}), 0);
}

TEST(ShareGptLike, HasItsMeansAndLimits) {
  const auto requests = sharegpt_like(1000);
  ASSERT_EQ(requests.size(), 1000u);
  double prompts = 0, outputs = 0;
  for (const auto& [prompt, output] : requests) {
    EXPECT_TRUE(prompt >= 4 && prompt <= 1024 && output >= 4 && prompt + output <= 2048);
    prompts += prompt;
    outputs += output;
  }
  EXPECT_NEAR(prompts / 1000, 215, 2);
  EXPECT_NEAR(outputs / 1000, 198, 2);
  EXPECT_EQ(sharegpt_like(1000), requests);
  EXPECT_NE(sharegpt_like(1000, 1), requests);
}

TEST(Row, SharesOfRatesAndTimes) {
  EXPECT_EQ(rate_row("n", "w", 3, "GB/s", 4, "limit").share, 0.75);
  EXPECT_EQ(time_row("n", "w", 4, "us", 3, "limit").share, 0.75);
  EXPECT_EQ(rate_row("n", "w", 3, "GB/s", 0, "").share, 0);
  EXPECT_EQ(time_row("n", "w", 3, "us", 0, "").share, 0);
}

TEST(Report, WritesEveryRowAtOnce) {
  const RowsFile file;
  Report report(file.path());
  report.add(rate_row("a", "quoted \" work", 3, "GB/s", 4, "limit"));
  EXPECT_EQ(file.read().at("a").at("work"), "quoted \" work");
  report.missing("b", "because");
  EXPECT_EQ(file.read().at("b").at("missing"), "because");
  Report(file.path()).add(rate_row("c", "", 1, "s", 0, ""));
  EXPECT_EQ(file.read().size(), 3u);
  EXPECT_THROW(Report("/nowhere/rows"), std::runtime_error);
}

TEST(Report, MarksRowsOfKernelsThatFailedTheirTrial) {
  const RowsFile file;
  Report report(file.path());
  report.mark({"wgmma"});
  report.add(rate_row("a", "", 1, "s", 0, ""));
  report.mark({});
  report.add(rate_row("b", "", 1, "s", 0, ""));
  EXPECT_EQ(file.read().at("a").at("failed_trials"), nlohmann::json({"wgmma"}));
  EXPECT_FALSE(file.read().at("b").contains("failed_trials"));
}

}  // namespace
}  // namespace headrace::bench
