#include "benchmarks/cuda/engine/engine_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>

#include "benchmarks/cuda/engine/config_folder.h"

namespace headrace::bench {

namespace {

constexpr const char* kModel = "m";
constexpr size_t kFewestSteps = 4;
constexpr int kPromptRuns = 4;  // the first warms up

using Clock = std::chrono::steady_clock;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

class EngineBench {
 public:
  EngineBench(Engine& engine, const EngineBenchOptions& options)
      : engine_(engine),
        options_(options),
        folder_(options.shape.name, options.shape.config_json()) {
    engine_.install_model(kModel, model_options());
    engine_.start_model(kModel);
  }
  EngineBench(const EngineBench&) = delete;
  EngineBench& operator=(const EngineBench&) = delete;
  ~EngineBench() { engine_.release_model(kModel); }

  void run(Report& report) {
    for (const DecodeWork& work : options_.decodes) decode(work, report);
    for (const int32_t tokens : options_.prompts) read_prompt(tokens, report);
    if (!options_.serving_number.empty()) serve(report);
  }

  /// Median seconds between two tokens of a sequence while all of them decode, once graphs are
  /// recorded, in the first steps of their kind.
  double warm_step_seconds(const DecodeWork& work) {
    step_seconds(work);
    return step_seconds(work);
  }

 private:
  /// The first sequence's steps are mixed with the prompts of the others.
  int32_t max_tokens(const DecodeWork& work) const {
    return options_.decode_tokens + work.sequences * (work.context / 1024 + 1);
  }

  ModelOptions model_options() const {
    int32_t longest = options_.serving_number.empty() ? 0 : 2048;
    int32_t most = options_.serving_number.empty() ? 1 : options_.max_num_seqs;
    for (const DecodeWork& work : options_.decodes) {
      longest = std::max(longest, work.context + max_tokens(work));
      most = std::max(most, work.sequences);
    }
    for (const int32_t tokens : options_.prompts) longest = std::max(longest, tokens + 1);
    return {.path = folder_.path(),
            .device = options_.device,
            .tensor_parallel_size = options_.gpus,
            .dtype = "bfloat16",
            .quantization = options_.quantization,
            .max_model_len = longest + 1,
            .max_num_seqs = most,
            .num_kv_blocks = options_.num_kv_blocks,
            .memory_utilization = options_.memory_utilization,
            .enable_prefix_caching = false,
            .dummy_weights = true};
  }

  Request submit(int32_t prompt, int32_t output) {
    RequestOptions request;
    std::uniform_int_distribution<int32_t> id(3, static_cast<int32_t>(options_.shape.vocab) - 1);
    for (int32_t i = 0; i < prompt; ++i) request.prompt_token_ids.push_back(id(random_));
    request.sampling = {.temperature = 0, .max_tokens = output, .ignore_eos = true};
    return engine_.submit(kModel, std::move(request));
  }

  static void finish(const Request& request) {
    request.wait();
    ResultQueue results = request.results();
    if (results.finish_reason() == FinishReason::kLength) return;
    throw std::runtime_error("a request ended early: " + results.get().error_message);
  }

  double step_seconds(const DecodeWork& work) {
    std::vector<Request> requests;
    std::vector<std::shared_ptr<std::vector<double>>> times;  // shared with the callbacks
    for (int32_t i = 0; i < work.sequences; ++i) {
      requests.push_back(submit(work.context, max_tokens(work)));
      times.push_back(std::make_shared<std::vector<double>>());
      requests.back().results().on_output([each = times.back()] { each->push_back(now()); });
    }
    for (const Request& request : requests) finish(request);
    double begin = 0, end = now();
    for (size_t i = 0; i < times.size(); ++i) {
      requests[i].results().on_output({});  // the last call may still be under way
      if (times[i]->empty()) throw std::runtime_error("a request gave no tokens");
      begin = std::max(begin, times[i]->front());
      end = std::min(end, times[i]->back());
    }
    std::vector<double> gaps;
    const std::vector<double>& first = *times.front();
    for (size_t i = 1; i < first.size(); ++i) {
      if (first[i - 1] >= begin && first[i] <= end) gaps.push_back(first[i] - first[i - 1]);
    }
    if (gaps.size() < kFewestSteps) throw std::runtime_error("too few steps of all sequences");
    return median(gaps);
  }

  void decode(const DecodeWork& work, Report& report) {
    step_seconds(work);
    const double before = read_bandwidth();
    const double seconds = step_seconds(work);
    const double limit = (before + read_bandwidth()) / 2;
    const double context = work.context + max_tokens(work) / 2.0;
    const WeightBits bits = weight_bits(options_.quantization);
    const double rate = options_.shape.decode_bytes(work.sequences, context, bits) / seconds;
    char text[160];
    std::snprintf(text, sizeof text, "%s %s, batch %d, context %d: %.3f ms a step, %.0f tokens/s",
                  options_.shape.name.c_str(), weights(), work.sequences, work.context,
                  1e3 * seconds, work.sequences / seconds);
    report.add(rate_row(work.number, text, 1e-9 * rate, "GB/s", 1e-9 * limit, "read bandwidth"));
  }

  /// From its arrival to its first token.
  void read_prompt(int32_t tokens, Report& report) {
    std::vector<double> seconds;
    for (int i = 0; i < kPromptRuns; ++i) {
      const double begin = now();
      finish(submit(tokens, 1));
      if (i > 0) seconds.push_back(now() - begin);
    }
    const double taken = median(seconds);
    char text[120];
    std::snprintf(text, sizeof text, "%s %s, one prompt of %d tokens: %.2f ms",
                  options_.shape.name.c_str(), weights(), tokens, 1e3 * taken);
    report.add(rate_row(options_.prompt_number + "-" + std::to_string(tokens), text, tokens / taken,
                        "tokens/s", 0, ""));
  }

  /// Output tokens per second, of requests that are all there from the beginning.
  double serve_all(const std::vector<RequestLength>& lengths) {
    std::vector<Request> requests;
    double tokens = 0;
    const double begin = now();
    for (const auto& [prompt, output] : lengths) {
      requests.push_back(submit(prompt, output));
      tokens += output;
    }
    for (const Request& request : requests) finish(request);
    return tokens / (now() - begin);
  }

  std::vector<RequestLength> lengths_of(int32_t requests, uint64_t seed) const {
    std::vector<RequestLength> out = sharegpt_like(requests, seed);
    for (auto& [prompt, output] : out) {
      prompt = (prompt - 1) / options_.shrink + 1;
      output = (output - 1) / options_.shrink + 1;
      if (options_.longest_output > 0) output = std::min(output, options_.longest_output);
    }
    return out;
  }

  void serve(Report& report) {
    serve_all(lengths_of(std::min(options_.requests, options_.max_num_seqs), 1));  // warm-up
    const auto lengths = lengths_of(options_.requests, 0);
    const ModelStats before = engine_.model_stats(kModel);
    const double rate = serve_all(lengths);
    const ModelStats after = engine_.model_stats(kModel);
    int64_t prompts = 0, outputs = 0;
    for (const auto& [prompt, output] : lengths) {
      prompts += prompt;
      outputs += output;
    }
    char text[200];
    std::snprintf(text, sizeof text,
                  "%s %s, %zu requests like ShareGPT's (%lld prompt, %lld output tokens), at most "
                  "%d at once, %llu steps",
                  options_.shape.name.c_str(), weights(), lengths.size(),
                  static_cast<long long>(prompts), static_cast<long long>(outputs),
                  options_.max_num_seqs,
                  static_cast<unsigned long long>(after.steps - before.steps));
    constexpr double kPublished = 16215;
    report.add(rate_row(options_.serving_number, text, rate, "tokens/s", kPublished,
                        "SGLang's, published"));
  }

  const char* weights() const {
    return options_.quantization.empty() ? "bf16" : options_.quantization.c_str();
  }

  double read_bandwidth() const { return options_.read_bandwidth ? options_.read_bandwidth() : 0; }

  Engine& engine_;
  const EngineBenchOptions& options_;
  ConfigFolder folder_;
  std::mt19937 random_{1};
};

}  // namespace

void bench_engine(Engine& engine, const EngineBenchOptions& options, Report& report) {
  EngineBench bench(engine, options);
  const ModelInfo info = engine.model_info(kModel);
  report.mark(info.replaced_kernels);
  const std::string kept = options.quantization.empty() ? "" : "-" + options.quantization;
  report.add(time_row("load-" + options.shape.name + kept,
                      info.device + ", random weights, no file", info.load_seconds, "s", 0, ""));
  bench.run(report);
}

void bench_ranks(Engine& engine, const EngineBenchOptions& options, Report& report) {
  std::vector<double> seconds[2];
  for (const bool spread : {false, true}) {
    EngineBenchOptions each = options;
    if (!spread) each.gpus = 1;
    EngineBench bench(engine, each);
    for (const DecodeWork& work : each.decodes) {
      seconds[spread ? 1 : 0].push_back(bench.warm_step_seconds(work));
    }
  }
  for (size_t i = 0; i < options.decodes.size(); ++i) {
    const DecodeWork& work = options.decodes[i];
    const double one = seconds[0][i], all = seconds[1][i];
    char text[160];
    std::snprintf(text, sizeof text, "%s, batch %d, context %d: %.3f ms a step, on one GPU %.3f ms",
                  options.shape.name.c_str(), work.sequences, work.context, 1e3 * all, 1e3 * one);
    report.add(rate_row(work.number, text, one / all, "x", options.gpus, "GPUs"));
  }
}

}  // namespace headrace::bench
