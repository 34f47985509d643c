// A chat in a terminal: chat_cpp MODEL. Each line of the input is a turn of the user.
//
// MODEL is a folder with a tokenizer and a chat template (chat_template.jinja).

#include <headrace/chat_template.h>
#include <headrace/engine.h>
#include <headrace/text.h>
#include <headrace/text_output.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

namespace {

/// A message of the conversation in JSON.
std::string message(std::string_view role, std::string_view content) {
  std::string json = "{\"role\": \"" + std::string(role) + "\", \"content\": \"";
  for (const char c : content) {
    char escaped[8];
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    std::snprintf(escaped, sizeof(escaped), plain ? "%c" : "\\u%04x", c);
    json += escaped;
  }
  return json + "\"}";
}

std::string answer(headrace::Engine& engine, const headrace::Tokenizer& tokenizer,
                   const std::string& prompt) {
  headrace::RequestOptions options;
  tokenizer.encode(prompt, {}, &options.prompt_token_ids);
  options.sampling.temperature = 0;
  options.sampling.max_tokens = 200;
  headrace::Request request = engine.submit("model", std::move(options));
  headrace::OutputText text{headrace::Detokenizer(tokenizer), headrace::StopStrings({"\nUser:"})};
  std::string whole;
  const auto show = [&](const std::string& piece) {
    std::cout << piece << std::flush;
    whole += piece;
  };
  for (bool finished = false; !finished && !text.match();) {
    const headrace::Output output = request.results().get();
    for (const int32_t id : output.token_ids) show(text.push(id, id != output.stop_token));
    finished = output.finished;
  }
  show(text.finish());
  request.cancel();  // if a stop string came first
  std::cout << std::endl;
  return whole;
}

void chat(const std::string& folder) {
  std::ifstream file(folder + "/chat_template.jinja");
  const headrace::ChatTemplate turns(std::string(std::istreambuf_iterator<char>(file), {}));
  const auto tokenizer = headrace::Tokenizer::load(folder);
  headrace::Engine engine;
  engine.install_model("model", {.path = folder});
  engine.start_model("model");
  std::string messages;
  for (std::string line; std::getline(std::cin, line);) {
    messages += (messages.empty() ? "" : ", ") + message("user", line);
    const std::string variables =
        "{\"messages\": [" + messages + "], \"add_generation_prompt\": true}";
    messages += ", " + message("assistant", answer(engine, *tokenizer, turns.render(variables)));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::cerr << "chat_cpp MODEL\n", 2;
  chat(argv[1]);
} catch (const headrace::Error& error) {
  std::cerr << headrace::error_code_name(error.code()) << ": " << error.what() << '\n';
  return 1;
}
