// Whole steps, 1,000 requests and a vision tower, on a GPU:
//
//   gpu_engine_bench [--rows FILE] [--shape llama-3.2-1b|llama-3.1-8b|qwen3-30b-a3b]
//                    [--quantization wint4|fp8] [--requests N] [--seqs N] [--longest N]
//                    [--part decode|serving|tower|ranks] [--gpus N]
//
// Without --shape the llamas, the small one first; without --part decode, serving and tower. decode
// reads prompts, too. --seqs: of requests at once, 256 by default. --longest: outputs end there.
// ranks holds steps of the 8B model on N GPUs (default 2) against one. Exits with 2 where there is
// no usable GPU.

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/cuda/device/bench_device.h"
#include "benchmarks/cuda/device/gpu_main.h"
#include "benchmarks/cuda/device/read_limit.h"
#include "benchmarks/cuda/engine/engine_bench.h"
#include "benchmarks/cuda/engine/tower_bench.h"

namespace headrace::bench {
namespace {

constexpr size_t kReadBytes = size_t{2} << 30;
constexpr int32_t kSeqs = 256;

struct Arguments {
  std::string rows, part, quantization;
  std::vector<std::string> shapes;
  int32_t requests = 1000, seqs = kSeqs, longest = 0, gpus = 2;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " is unknown or lacks its value");
    const std::string value = argv[i + 1];
    if (name == "--rows") {
      out.rows = value;
    } else if (name == "--part" &&
               (value == "decode" || value == "serving" || value == "tower" || value == "ranks")) {
      out.part = value;
    } else if (name == "--shape") {
      out.shapes.push_back(value);
    } else if (name == "--quantization" && (value == "wint4" || value == "fp8")) {
      out.quantization = value;
    } else if (name == "--requests") {
      out.requests = static_cast<int32_t>(positive(value));
    } else if (name == "--seqs") {
      out.seqs = static_cast<int32_t>(positive(value));
    } else if (name == "--longest") {
      out.longest = static_cast<int32_t>(positive(value));
    } else if (name == "--gpus" && positive(value) >= 2) {
      out.gpus = static_cast<int32_t>(positive(value));
    } else {
      throw std::invalid_argument(name + " " + value + " means nothing here");
    }
  }
  if (out.shapes.empty()) out.shapes = {"llama-3.2-1b", "llama-3.1-8b"};
  return out;
}

bool measure_tower(Report& report) {
  try {
    Engine engine;
    bench_tower(engine, {.shape = tower_shape("qwen2.5-vl"), .number = "tower-qwen2.5-vl"}, report);
    return true;
  } catch (const std::exception& e) {
    report.missing("tower-qwen2.5-vl", e.what());
    return false;
  }
}

/// What a shape is called in numbers of rows.
std::string short_name(const std::string& shape) {
  if (shape == "llama-3.1-8b") return "8b";
  return shape == "llama-3.2-1b" ? "1b" : "moe-30b";
}

/// And its quantization: weights alone have 4 bits, or weights and activations 8.
std::string short_quantization(const std::string& quantization) {
  if (quantization.empty()) return "";
  return quantization == "wint4" ? "-int4" : "-fp8";
}

/// Returns whether all was measured.
bool measure(const std::string& shape, const Arguments& arguments, ReadLimit& limit,
             Report& report) {
  const bool large = shape == "llama-3.1-8b";
  const std::string kept = short_quantization(arguments.quantization);
  const std::string size = short_name(shape) + kept;
  std::string kind;
  if (arguments.seqs != kSeqs)
    kind.append("-").append(std::to_string(arguments.seqs)).append("-seqs");
  if (arguments.longest > 0) kind.append("-").append(std::to_string(arguments.longest));
  const auto print = [](LogLevel level, std::string_view text) {
    if (level >= LogLevel::kInfo) std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
  };
  std::vector<DecodeWork> decodes;
  std::vector<int32_t> prompts;
  if (arguments.part != "serving") {
    decodes = {{"decode-" + size, 1, 1024},
               {"decode-" + size + "-8", 8, 1024},
               {"decode-" + size + "-64", 64, 1024}};
    prompts = {512, 2048, 8192};
  }
  try {
    Engine engine({.log_sink = print});
    bench_engine(
        engine,
        {.shape = model_shape(shape),
         .quantization = arguments.quantization,
         .decodes = std::move(decodes),
         .prompts = std::move(prompts),
         .prompt_number = "prompt-" + size,
         .serving_number = large && arguments.part != "decode" ? "serving-8b" + kept + kind : "",
         .requests = arguments.requests,
         .longest_output = arguments.longest,
         .max_num_seqs = arguments.seqs,
         .read_bandwidth = [&limit] { return limit.measure(); }},
        report);
    return true;
  } catch (const std::exception& e) {
    report.missing("engine-" + size, e.what());
    return false;
  }
}

/// Steps on several GPUs against one. A machine with fewer has no such rows.
bool measure_ranks(const Arguments& arguments, int32_t gpus_here, Report& report) {
  const std::string number = std::to_string(arguments.gpus);
  const std::string behind = std::string("-") + number + "-gpus";
  const std::string one = "decode-8b" + behind, many = "decode-8b-64" + behind;
  std::string why;
  bool all = true;
  if (gpus_here < arguments.gpus) {
    why = gpus_here == 1 ? "one GPU" : std::to_string(gpus_here) + " GPUs";
  } else {
    try {
      Engine engine;
      bench_ranks(engine,
                  {.shape = model_shape("llama-3.1-8b"),
                   .decodes = {{one, 1, 1024}, {many, 64, 1024}},
                   .gpus = arguments.gpus},
                  report);
    } catch (const std::exception& e) {
      why = e.what();
      all = false;
    }
  }
  if (!why.empty()) {
    for (const std::string& row : {one, many}) report.missing(row, why);
  }
  return all;
}

int run(const Arguments& arguments) {
  const std::unique_ptr<BenchDevice> device = make_gpu_device();
  std::printf("%s\n", device->traits().name.c_str());
  ReadLimit limit(*device, kReadBytes);
  Report report(arguments.rows);
  bool all = true;
  if (arguments.part == "ranks") {
    return measure_ranks(arguments, device->traits().gpus, report) ? 0 : 1;
  }
  if (arguments.part.empty() || arguments.part == "tower") all = measure_tower(report);
  if (arguments.part == "tower") return all ? 0 : 1;
  for (const std::string& shape : arguments.shapes) {
    all = measure(shape, arguments, limit, report) && all;
  }
  return all ? 0 : 1;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;  // NOLINT: this program's own
  return gpu_main([&] { return run(parse(argc, argv)); });
}
