// From process start to the first token, from a checkpoint of random weights in the file cache:
//
//   startup_bench [--shape llama-3.1-8b] [--device cuda] [--folder FOLDER] [--repeats 3]
//                 [--rows FILE] [--keep]
//
// Makes FOLDER (default: one in the temporary folder) with the checkpoint (16 GB for 8B) unless it
// is there, and removes what it has made, but for --keep. Each start is a process of its own: a
// program of a few lines over the public C++ API. The first warms the file cache and doesn't count.
// On a GPU every other start also tries its kernels (docs/cuda.md), as the first one on a machine
// does: what that adds to a load is a row of its own.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "benchmarks/cuda/report.h"
#include "benchmarks/cuda/startup/checkpoint_writer.h"
#include "headrace/engine.h"

namespace headrace::bench {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string shape = "llama-3.1-8b", device = "cuda", rows;
  fs::path folder, child;
  int repeats = 3;
  bool keep = false;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--keep") {
      out.keep = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + " is unknown or lacks its value");
    const std::string value = argv[++i];
    if (name == "--shape") {
      out.shape = value;
    } else if (name == "--device") {
      out.device = value;
    } else if (name == "--rows") {
      out.rows = value;
    } else if (name == "--folder") {
      out.folder = value;
    } else if (name == "--child") {
      out.child = value;
    } else if (name == "--repeats" && std::atoi(value.c_str()) > 0) {
      out.repeats = std::atoi(value.c_str());
    } else {
      throw std::invalid_argument(name + " " + value + " means nothing here");
    }
  }
  if (out.folder.empty()) {
    const std::string own = "headrace-" + out.shape + "-" + std::to_string(getpid());
    out.folder = fs::temp_directory_path() / own;
  }
  return out;
}

/// What is timed: prints how long loading took once the first token is there.
void first_token(const fs::path& folder, const std::string& device) {
  Engine engine;
  engine.install_model("m", {.path = folder.string(), .device = device, .max_model_len = 2048});
  engine.start_model("m");
  const Request request = engine.submit(
      "m", {.prompt_token_ids = {5, 6, 7, 8}, .sampling = {.temperature = 0, .max_tokens = 1}});
  const Output output = request.results().get();
  if (output.token_ids.empty()) throw std::runtime_error(output.error_message);
  std::printf("%f\n", engine.model_info("m").load_seconds);
}

/// Seconds from the start of a process that runs first_token() to its line, and what it says.
/// `cache`: where it finds and leaves what a GPU has passed.
std::pair<double, double> start_once(const Arguments& arguments, const fs::path& cache) {
  std::ostringstream command;
  command << "HEADRACE_CACHE='" << cache.string() << "' '"
          << fs::read_symlink("/proc/self/exe").string() << "' --child '"
          << arguments.folder.string() << "' --device '" << arguments.device << '\'';
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> child(popen(command.str().c_str(), "r"),
                                                              pclose);
  double load = 0;
  if (child == nullptr || std::fscanf(child.get(), "%lf", &load) != 1) {
    throw std::runtime_error("the process that was started gave no token");
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {seconds, load};
}

std::string number_of(const Arguments& arguments) {
  return "startup-" + (arguments.shape == "llama-3.1-8b" ? "8b" : arguments.shape);
}

void measure(const Arguments& arguments, Report& report) {
  std::vector<double> starts, loads, trials;
  const fs::path cache =
      fs::temp_directory_path() / ("headrace-trials-" + std::to_string(getpid()));
  for (int i = 0; i <= arguments.repeats; ++i) {
    fs::remove_all(cache);
    const double tried = start_once(arguments, cache).second;
    const auto [seconds, load] = start_once(arguments, cache);
    if (i == 0) continue;
    starts.push_back(seconds);
    loads.push_back(load);
    trials.push_back((tried - load) * 1e3);
  }
  fs::remove_all(cache);
  char load[40];
  std::snprintf(load, sizeof load, "load %.2f s", median(loads));
  const std::string text = arguments.shape + ", process start to first token, warm file cache (" +
                           arguments.folder.parent_path().string() + "); " + load;
  report.add(time_row(number_of(arguments), text, median(starts), "s", 0, ""));
  if (arguments.device == "cpu") return;
  report.add(time_row("trials-at-load",
                      "a load that tries the GPU's kernels, less one that doesn't", median(trials),
                      "ms", 0, ""));
}

int run(const Arguments& arguments) {
  if (!arguments.child.empty()) {
    first_token(arguments.child, arguments.device);
    return 0;
  }
  Report report(arguments.rows);
  const bool writes = !fs::exists(arguments.folder);
  if (!writes && !fs::exists(arguments.folder / "model.safetensors")) {
    throw std::invalid_argument(arguments.folder.string() + " is there, but holds no checkpoint");
  }
  const auto clean_up = [&] {
    if (writes && !arguments.keep) fs::remove_all(arguments.folder);
  };
  try {
    if (writes) write_checkpoint(model_shape(arguments.shape), arguments.folder);
    measure(arguments, report);
  } catch (const std::exception& e) {
    clean_up();
    report.missing(number_of(arguments), e.what());
    return 1;
  }
  clean_up();
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  try {
    return headrace::bench::run(headrace::bench::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
