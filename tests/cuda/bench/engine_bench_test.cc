// The benchmark of whole steps, run once through the engine on the CUDA backend's host side as it
// is, over a fake runtime with emulated kernels.

#include "benchmarks/cuda/engine/engine_bench.h"

#include "benchmarks/cuda/engine/tower_bench.h"
#include "cuda/host/support/emulated_engine.h"
#include "rows_file.h"

namespace headrace::bench {
namespace {

EngineBenchOptions toy() {
  return {.shape = model_shape("toy"),
          .decodes = {{"decode-1", 1, 20}, {"decode-3", 3, 20}},
          .decode_tokens = 8,
          .num_kv_blocks = 64};
}

TEST(EngineBench, MeasuresStepsAndRequests) {
  cuda::EmulatedGpu gpu;
  const auto engine = emulated_engine(gpu);
  const RowsFile file;
  Report report(file.path());
  EngineBenchOptions options = toy();
  int measured = 0;
  options.read_bandwidth = [&measured] { return 1e9 * ++measured; };
  options.prompts = {40};
  options.prompt_number = "prompt";
  bench_engine(*engine, options, report);
  const auto rows = file.read();
  for (const char* number : {"load-toy", "decode-1", "decode-3", "prompt-40"}) {
    ASSERT_TRUE(rows.contains(number)) << number;
    expect_measured(rows.at(number));
  }
  // Before and after each.
  EXPECT_EQ(rows.at("decode-1").at("limit"), 1.5);
  EXPECT_EQ(rows.at("decode-3").at("limit"), 3.5);
  EXPECT_FALSE(rows.at("load-toy").contains("failed_trials"));
  EXPECT_TRUE(engine->models().empty());
}

TEST(EngineBench, MeasuresExpertsAndQuantizedWeights) {
  for (const auto& [shape, quantization] :
       {std::pair{"toy-moe", ""}, {"toy-moe", "wint4"}, {"toy", "wint4"}, {"toy", "fp8"}}) {
    cuda::EmulatedGpu gpu;
    const auto engine = emulated_engine(gpu);
    const RowsFile file;
    Report report(file.path());
    EngineBenchOptions options = toy();
    options.shape = model_shape(shape);
    options.quantization = quantization;
    bench_engine(*engine, options, report);
    const auto rows = file.read();
    const std::string kept = *quantization == 0 ? "" : std::string("-") + quantization;
    expect_measured(rows.at(std::string("load-") + shape + kept));
    expect_measured(rows.at("decode-1"));
    expect_measured(rows.at("decode-3"));
  }
}

TEST(EngineBench, HoldsSeveralGpusAgainstOne) {
  cuda::EmulatedGpu gpu;
  gpu.api.add_devices(1);
  const auto engine = emulated_engine(gpu);
  const RowsFile file;
  Report report(file.path());
  EngineBenchOptions options = toy();
  options.gpus = 2;
  bench_ranks(*engine, options, report);
  const auto rows = file.read();
  EXPECT_EQ(rows.size(), 2u);
  for (const char* number : {"decode-1", "decode-3"}) {
    expect_measured(rows.at(number));
    EXPECT_EQ(rows.at(number).at("limit"), 2);
  }
  EXPECT_TRUE(engine->models().empty());
}

TEST(EngineBench, ServesRequests) {
  cuda::EmulatedGpu gpu;
  const auto engine = emulated_engine(gpu);
  const RowsFile file;
  Report report(file.path());
  EngineBenchOptions options = toy();
  options.decodes.clear();
  options.serving_number = "serving";
  options.requests = 2;
  options.shrink = 64;
  options.max_num_seqs = 2;
  options.longest_output = 2;
  bench_engine(*engine, options, report);
  const nlohmann::json row = file.read().at("serving");
  expect_measured(row);
  EXPECT_NE(row.at("work").get<std::string>().find(", 4 output tokens"), std::string::npos) << row;
}

TEST(TowerBench, EncodesImages) {
  cuda::EmulatedGpu gpu;
  const auto engine = emulated_engine(gpu);
  const RowsFile file;
  Report report(file.path());
  bench_tower(
      *engine,
      {.shape = tower_shape("toy"), .number = "tower", .side = 8, .images = 1, .num_kv_blocks = 8},
      report);
  expect_measured(file.read().at("tower"));
  EXPECT_TRUE(engine->models().empty());
}

TEST(EngineBench, SaysWhyItCannot) {
  cuda::EmulatedGpu gpu;
  const auto engine = emulated_engine(gpu);
  const RowsFile file;
  Report report(file.path());
  EngineBenchOptions options = toy();
  options.decode_tokens = 1;
  EXPECT_THROW(bench_engine(*engine, options, report), std::runtime_error);
  EXPECT_TRUE(engine->models().empty());
}

}  // namespace
}  // namespace headrace::bench
