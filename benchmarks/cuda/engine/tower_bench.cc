#include "benchmarks/cuda/engine/tower_bench.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "benchmarks/cuda/engine/config_folder.h"

namespace headrace::bench {

namespace {

constexpr const char* kModel = "m";

using Clock = std::chrono::steady_clock;

class Loaded {
 public:
  Loaded(Engine& engine, const ModelOptions& options) : engine_(engine) {
    engine_.install_model(kModel, options);
    engine_.start_model(kModel);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() { engine_.release_model(kModel); }

 private:
  Engine& engine_;
};

/// An image of pseudo-random pixels, and one token of text.
RequestOptions image_request(const TowerBenchOptions& options, uint32_t seed) {
  const TowerShape& tower = options.shape;
  const auto patch = static_cast<int32_t>(tower.patch), merge = static_cast<int32_t>(tower.merge);
  const int32_t pixels = options.side * patch, rows = options.side / merge;
  RequestOptions out;
  MediaInput& item = out.media.emplace_back();
  item.pixels.layout = {1, pixels, pixels, patch, merge, 2};
  std::vector<uint8_t> data(static_cast<size_t>(pixels) * static_cast<size_t>(pixels) * 3);
  uint32_t state = seed;
  for (uint8_t& byte : data) {
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  item.pixels.data = std::make_shared<const std::vector<uint8_t>>(std::move(data));
  for (int i = 0; i < 768; ++i) {
    item.pixels.table.push_back(static_cast<float>(i % 256 - 128) / 64.0f);
  }
  item.runs.push_back({0, rows * rows, 0, {1, rows, rows}, {0}});
  out.prompt_token_ids.assign(static_cast<size_t>(rows * rows) + 1, 3);
  out.sampling = {.temperature = 0, .max_tokens = 1, .ignore_eos = true};
  return out;
}

double seconds_of(Engine& engine, RequestOptions request) {
  const auto begin = Clock::now();
  const Request running = engine.submit(kModel, std::move(request));
  running.wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  ResultQueue results = running.results();
  if (results.finish_reason() == FinishReason::kLength) return seconds;
  throw std::runtime_error("a request ended early: " + results.get().error_message);
}

}  // namespace

void bench_tower(Engine& engine, const TowerBenchOptions& options, Report& report) {
  const TowerShape& tower = options.shape;
  const int64_t patches = int64_t{options.side} * options.side;
  const int64_t rows = patches / (tower.merge * tower.merge);
  const ConfigFolder folder(tower.name, tower.config_json());
  const Loaded loaded(engine, {.path = folder.path(),
                               .device = options.device,
                               .dtype = "bfloat16",
                               .max_model_len = static_cast<int32_t>(rows + 64),
                               .max_num_seqs = 1,
                               .num_kv_blocks = options.num_kv_blocks,
                               .memory_utilization = options.memory_utilization,
                               .dummy_weights = true});
  seconds_of(engine, image_request(options, 1));  // a warm-up
  std::vector<double> times;
  for (int32_t i = 0; i < options.images; ++i) {
    times.push_back(seconds_of(engine, image_request(options, static_cast<uint32_t>(2 + i))));
  }
  const double seconds = median(times);
  char text[160];
  std::snprintf(text, sizeof text,
                "%s bf16, an image of %d x %d patches: %.2f ms from pixels to a token",
                tower.name.c_str(), options.side, options.side, 1e3 * seconds);
  report.add(
      rate_row(options.number, text, 1e-12 * tower.flops(patches) / seconds, "TFLOP/s", 0, ""));
}

}  // namespace headrace::bench
