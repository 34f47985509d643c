// Runs prompts side by side and prints the tokens of each as they come.
//
//   embed_cpp MODEL [MAX_TOKENS] < prompts
//
// A prompt is a line of token ids. A line of output is "NUMBER: ids", new tokens of the prompt with
// that number (from 0), or "NUMBER= why it ended". text.py turns text into ids, and ids into text.

#include <headrace/engine.h>
#include <headrace/output_selector.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr const char* kModel = "model";

std::vector<std::vector<int32_t>> read_prompts(std::istream& in) {
  std::vector<std::vector<int32_t>> prompts;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<int32_t> ids;
    for (int32_t id = 0; words >> id;) ids.push_back(id);
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

void print_end(size_t number, headrace::ErrorCode code, std::string_view reason) {
  std::cout << number << "= ";
  if (code != headrace::ErrorCode::kOk) std::cout << headrace::error_code_name(code) << ": ";
  std::cout << reason << std::endl;
}

void print(size_t number, const headrace::Output& output) {
  if (!output.token_ids.empty()) {
    std::cout << number << ":";
    for (int32_t id : output.token_ids) std::cout << ' ' << id;
    std::cout << std::endl;
  }
  if (!output.finished) return;
  switch (output.finish_reason) {
    case headrace::FinishReason::kStop:
      return print_end(number, output.error_code, "stop");
    case headrace::FinishReason::kLength:
      return print_end(number, output.error_code, "length");
    default:
      return print_end(number, output.error_code, output.error_message);
  }
}

void run(headrace::Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
         int32_t max_tokens) {
  std::vector<std::optional<headrace::ResultQueue>> queues(prompts.size());
  headrace::OutputSelector selector;
  size_t running = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    headrace::RequestOptions options;
    options.prompt_token_ids = prompts[i];
    options.sampling.temperature = 0;
    options.sampling.max_tokens = max_tokens;
    try {
      queues[i] = engine.submit(kModel, std::move(options)).results();
      selector.add(*queues[i], static_cast<int64_t>(i));
      ++running;
    } catch (const headrace::Error& error) {
      print_end(i, error.code(), error.what());  // a bad prompt; the others go on
    }
  }
  while (running > 0) {
    selector.wait(std::nullopt);
    for (int64_t i : selector.take()) {
      const auto output = queues[i]->get_nowait();
      if (!output) continue;
      print(i, *output);
      if (output->finished) --running;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: embed_cpp MODEL [MAX_TOKENS] < prompts\n";
    return 2;
  }
  try {
    const auto prompts = read_prompts(std::cin);
    headrace::Engine engine({.log_sink = [](headrace::LogLevel level, std::string_view text) {
      std::cerr << headrace::log_level_name(level) << ": " << text << '\n';
    }});
    engine.install_model(kModel, {.path = argv[1]});
    engine.start_model(kModel);
    run(engine, prompts, argc == 3 ? std::atoi(argv[2]) : 64);
  } catch (const headrace::Error& error) {
    std::cerr << headrace::error_code_name(error.code()) << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}
