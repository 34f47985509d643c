// Whole steps, 1,000 requests and a vision tower, on a GPU:
//
//   gpu_engine_bench [--rows FILE] [--shape llama-3.2-1b|llama-3.1-8b] [--requests N] [--seqs N]
//                    [--part decode|serving|tower]
//
// Without --shape both, the small one first; without --part all. Exits with 2 where there is no
// usable GPU.

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "bench_device.h"
#include "engine_bench.h"
#include "gpu_main.h"
#include "read_limit.h"
#include "tower_bench.h"

namespace headrace::bench {
namespace {

constexpr size_t kReadBytes = size_t{2} << 30;

struct Arguments {
  std::string rows, part;
  std::vector<std::string> shapes;
  int32_t requests = 1000, seqs = 256;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " is unknown or lacks its value");
    const std::string value = argv[i + 1];
    if (name == "--rows") {
      out.rows = value;
    } else if (name == "--part" && (value == "decode" || value == "serving" || value == "tower")) {
      out.part = value;
    } else if (name == "--shape") {
      out.shapes.push_back(value);
    } else if (name == "--requests") {
      out.requests = static_cast<int32_t>(positive(value));
    } else if (name == "--seqs") {
      out.seqs = static_cast<int32_t>(positive(value));
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

/// Returns whether all was measured.
bool measure(const std::string& shape, const Arguments& arguments, ReadLimit& limit,
             Report& report) {
  const bool large = shape == "llama-3.1-8b";
  const std::string size = large ? "8b" : "1b";
  const auto print = [](LogLevel level, std::string_view text) {
    if (level >= LogLevel::kInfo) std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
  };
  std::vector<DecodeWork> decodes;
  if (arguments.part != "serving") {
    decodes = {{"decode-" + size, 1, 1024},
               {"decode-" + size + "-8", 8, 1024},
               {"decode-" + size + "-64", 64, 1024}};
  }
  try {
    Engine engine({.log_sink = print});
    bench_engine(engine,
                 {.shape = model_shape(shape),
                  .decodes = std::move(decodes),
                  .serving_number = large && arguments.part != "decode" ? "serving-8b" : "",
                  .requests = arguments.requests,
                  .max_num_seqs = arguments.seqs,
                  .read_bandwidth = [&limit] { return limit.measure(); }},
                 report);
    return true;
  } catch (const std::exception& e) {
    report.missing("engine-" + size, e.what());
    return false;
  }
}

int run(const Arguments& arguments) {
  const std::unique_ptr<BenchDevice> device = make_gpu_device();
  std::printf("%s\n", device->traits().name.c_str());
  ReadLimit limit(*device, kReadBytes);
  Report report(arguments.rows);
  bool all = true;
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
